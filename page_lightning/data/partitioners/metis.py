"""METIS parts as clients: equal sizes, few edges between clients."""

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.base import Compat, Partitioner
from page_lightning.data.partitioners.communities import metis_parts
from page_lightning.data.partitioners.repair import fill_empty_clients
from page_lightning.data.source import SourceGraph


class Metis(Partitioner):
    """METIS community split: part `i` of a `K`-way partition is client `i` (Karypis and Kumar, 1998).

    Where METIS leaves a part empty, that client gets half of the largest one.

    Args:
        compat: "openfgl" uses METIS's own seed, as OpenFGL does, and raises where a part is empty.
    """

    def __init__(self, compat: Compat | None = None) -> None:
        self.compat = compat

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        adjacency = graph.adjacency()
        if self.compat == "openfgl":
            return torch.from_numpy(metis_parts(adjacency, num_clients, seed=None))
        parts = metis_parts(adjacency, num_clients, seed)
        return torch.from_numpy(fill_empty_clients(parts, num_clients, np.arange(graph.num_nodes)))
