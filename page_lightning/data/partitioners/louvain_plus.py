"""Louvain communities grouped by their label distribution: clients of unlike labels and sizes."""

import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.base import Compat, Partitioner
from page_lightning.data.partitioners.communities import cluster_by_labels, louvain_communities
from page_lightning.data.partitioners.repair import fill_empty_clients, split_largest
from page_lightning.data.source import SourceGraph
from page_lightning.errors import PartitionError


class LouvainPlus(Partitioner):
    """Louvain label-imbalance split: communities with similar label distributions (k-means) make one client.

    With fewer communities than clients the largest communities are halved, and a client that stays empty gets half of
    the largest one.

    Args:
        resolution: Resolution of the modularity; larger gives smaller communities.
        compat: "openfgl" raises in those two cases, where OpenFGL fails. K-means is seeded in either case, so
            OpenFGL's sizes agree in distribution only.

    Raises:
        PartitionError: `resolution` is not positive; with `compat="openfgl"`, there are fewer communities than clients
            or a client stays empty.
    """

    def __init__(self, resolution: float = 1.0, compat: Compat | None = None) -> None:
        if not resolution > 0:
            msg = f"data.partitioner LouvainPlus: resolution {resolution} must be positive"
            raise PartitionError(msg)
        self.resolution = resolution
        self.compat = compat

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        community = louvain_communities(graph.adjacency(), self.resolution)
        found = int(community.max()) + 1
        if found < num_clients:
            if self.compat == "openfgl":
                msg = f"data.num_clients {num_clients} is more than the {found} Louvain communities of {graph.name}"
                raise PartitionError(msg)
            community = split_largest(community, num_clients)
        assignment = cluster_by_labels(community, graph.y.numpy(), graph.num_classes, num_clients, seed)
        if self.compat is None:
            assignment = fill_empty_clients(assignment, num_clients, community.argsort(kind="stable"))
        return torch.from_numpy(assignment)
