"""METIS parts grouped by their label distribution: clients of unlike labels and sizes."""

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.base import Compat, Partitioner
from page_lightning.data.partitioners.communities import cluster_by_labels, metis_parts
from page_lightning.data.partitioners.repair import fill_empty_clients, split_largest
from page_lightning.data.source import SourceGraph
from page_lightning.errors import PartitionError


class MetisPlus(Partitioner):
    """METIS label-imbalance split: parts with similar label distributions (k-means) make one client.

    With fewer parts than clients the largest parts are halved, and a client that stays empty gets half of the largest
    one.

    Args:
        num_communities: Number of METIS parts; that of nodes where the graph has fewer.
        compat: "openfgl" uses METIS's own seed and raises in those two cases, where OpenFGL fails. K-means is seeded
            in either case, so OpenFGL's sizes agree in distribution only.

    Raises:
        PartitionError: `num_communities` is not positive; with `compat="openfgl"`, there are fewer parts than clients
            or a client stays empty.
    """

    def __init__(self, num_communities: int = 100, compat: Compat | None = None) -> None:
        if num_communities < 1:
            msg = f"data.partitioner MetisPlus: num_communities {num_communities} must be positive"
            raise PartitionError(msg)
        self.num_communities = num_communities
        self.compat = compat

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        openfgl = self.compat == "openfgl"
        num_parts = min(self.num_communities, graph.num_nodes)
        part = metis_parts(graph.adjacency(), num_parts, None if openfgl else seed)
        found = len(np.unique(part))
        if found < num_clients:
            if openfgl:
                msg = f"data.num_clients {num_clients} is more than the {found} METIS parts (num_communities)"
                raise PartitionError(msg)
            part = split_largest(part, num_clients)
        assignment = cluster_by_labels(part, graph.y.numpy(), graph.num_classes, num_clients, seed)
        if not openfgl:
            assignment = fill_empty_clients(assignment, num_clients, part.argsort(kind="stable"))
        return torch.from_numpy(assignment)
