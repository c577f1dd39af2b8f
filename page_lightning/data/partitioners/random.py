"""Uniformly random clients."""

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.base import Partitioner
from page_lightning.data.source import SourceGraph
from page_lightning.data.streams import Stream, generator


class Random(Partitioner):
    """Random clients whose sizes differ by at most one: no structure survives, the worst case for kept edges."""

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        position = generator(seed, Stream.PARTITION).permutation(graph.num_nodes)
        return torch.from_numpy(position.astype(np.int64) * num_clients // graph.num_nodes)
