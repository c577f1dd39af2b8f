"""Graph neural networks that run as one model or as a stack of clients' models."""

from page_lightning.backbones.base import Backbone
from page_lightning.backbones.gat import GAT
from page_lightning.backbones.gcn import GCN
from page_lightning.backbones.gin import GIN
from page_lightning.backbones.mlp import MLP
from page_lightning.backbones.pyg_module import PyGModule
from page_lightning.backbones.sage import GraphSAGE
from page_lightning.backbones.sgc import SGC

__all__ = ["GAT", "GCN", "GIN", "MLP", "SGC", "Backbone", "GraphSAGE", "PyGModule"]
