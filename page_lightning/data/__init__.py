"""Graphs, their division among clients, and the data module that holds them."""

from page_lightning.data.datamodule import FederatedGraphDataModule
from page_lightning.data.partitioners import Partitioner
from page_lightning.data.source import SourceGraph
from page_lightning.data.sources import list_sources, load_source

__all__ = ["FederatedGraphDataModule", "Partitioner", "SourceGraph", "list_sources", "load_source"]
