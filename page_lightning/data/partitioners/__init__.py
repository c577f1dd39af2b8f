"""Ways to divide a graph among clients."""

from page_lightning.data.partitioners.base import Partitioner
from page_lightning.data.partitioners.label_skew import LabelSkew
from page_lightning.data.partitioners.louvain import Louvain
from page_lightning.data.partitioners.louvain_plus import LouvainPlus
from page_lightning.data.partitioners.metis import Metis
from page_lightning.data.partitioners.metis_plus import MetisPlus
from page_lightning.data.partitioners.random import Random

__all__ = ["LabelSkew", "Louvain", "LouvainPlus", "Metis", "MetisPlus", "Partitioner", "Random"]
