"""What every partitioner promises: each node has one client, and no client is empty."""

from abc import ABC, abstractmethod
from typing import Literal, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from page_lightning.data.source import SourceGraph
from page_lightning.errors import PartitionError

Compat = Literal["openfgl"]
Assignment = npt.NDArray[np.int64]


class Partitioner(ABC):
    """Divides the nodes of a graph among clients.

    A subclass implements `assign`; callers use `partition`, which checks the request and the result. The same graph,
    number of clients and seed give the same partition.
    """

    @final
    def partition(self, graph: SourceGraph, num_clients: int, seed: int = 0) -> Tensor:
        """Divide the nodes of `graph` among `num_clients` clients.

        Args:
            graph: Graph of `N` nodes.
            num_clients: Number of clients `K`, from 1 to `N`.
            seed: Seed of whatever is random, not negative.

        Returns:
            Client of each node `[N]`, int64; every client has at least one node.

        Raises:
            PartitionError: The graph cannot be divided as asked.
        """
        if not 1 <= num_clients <= graph.num_nodes:
            msg = f"data.num_clients {num_clients} must be between 1 and the {graph.num_nodes} nodes of {graph.name}"
            raise PartitionError(msg)
        if seed < 0:
            msg = f"data.seed {seed} must not be negative"
            raise PartitionError(msg)
        assignment = self.assign(graph, num_clients, seed)
        if assignment.shape != (graph.num_nodes,) or assignment.min() < 0 or assignment.max() >= num_clients:
            msg = f"data.partitioner {type(self).__name__} did not assign every node to one of {num_clients} clients"
            raise PartitionError(msg)
        empty = (torch.bincount(assignment, minlength=num_clients) == 0).nonzero().flatten().tolist()
        if empty:
            msg = (
                f"data.partitioner {type(self).__name__} leaves {len(empty)} of data.num_clients {num_clients} clients "
                f"without a node (first: client {empty[0]}); ask for fewer clients"
            )
            raise PartitionError(msg)
        return assignment

    @abstractmethod
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        """Client of each node, for arguments already checked.

        Args:
            graph: Graph of `N` nodes.
            num_clients: Number of clients `K`, from 1 to `N`.
            seed: Seed of whatever is random.

        Returns:
            Client of each node `[N]`, int64 in `[0, K)`.
        """
