"""Louvain communities, cut and packed into clients of nearly equal size."""

from collections import deque

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.arrangement import arrange, cut
from page_lightning.data.partitioners.base import Assignment, Compat, Partitioner
from page_lightning.data.partitioners.communities import louvain_communities
from page_lightning.data.source import SourceGraph
from page_lightning.errors import PartitionError


class Louvain(Partitioner):
    """Louvain community split: clients are neighbourhoods of the community structure.

    Nodes are laid out in a line, community by community, communities with many edges between them side by side, and a
    community larger than a client by the communities inside it. The line is cut where the fewest edges cross, near the
    places that give equal sizes. So every size is within `delta` of `N / K`, which OpenFGL aims at and misses. Nothing
    is random: the seed has no effect.

    Args:
        resolution: Resolution of the modularity; larger gives smaller communities.
        delta: Largest difference between a client's number of nodes and `N / K`, at least 1; where clients are small,
            half of `N / K` instead.
        compat: "openfgl" repeats OpenFGL's own rule, node for node: communities are cut by node number to at most
            `N // K - delta` and packed by first fit, and sizes may differ by more than `delta`.

    Raises:
        PartitionError: `resolution` or `delta` is not positive; with `compat="openfgl"`, `N // K <= delta`, where
            OpenFGL never ends, or a client stays empty.
    """

    def __init__(self, resolution: float = 1.0, delta: int = 20, compat: Compat | None = None) -> None:
        if not resolution > 0 or delta < 1:
            msg = f"data.partitioner Louvain: resolution {resolution} and delta {delta} must be positive"
            raise PartitionError(msg)
        self.resolution = resolution
        self.delta = delta
        self.compat = compat

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        adjacency = graph.adjacency()
        if self.compat == "openfgl":
            community = louvain_communities(adjacency, self.resolution)
            return torch.from_numpy(_pack_as_openfgl(community, num_clients, self.delta))
        order = arrange(adjacency, self.resolution, num_clients, self.delta)
        return torch.from_numpy(cut(adjacency, order, num_clients, self.delta))


def _pack_as_openfgl(community: Assignment, num_clients: int, delta: int) -> Assignment:
    """OpenFGL's assignment of communities, numbered by first appearance, to clients."""
    quota = len(community) // num_clients
    cap = quota - delta
    if cap < 1:
        msg = (
            f"data.num_clients {num_clients} gives {quota} nodes a client, not more than delta {delta}: OpenFGL's "
            "rule never ends there; lower data.partitioner delta or leave out compat"
        )
        raise PartitionError(msg)
    by_community = np.argsort(community, kind="stable")
    pending = deque(np.split(by_community, np.cumsum(np.bincount(community))[:-1]))
    groups = []
    while pending:  # the rest of a group that is too large queues behind all others
        group = pending.popleft()
        groups.append(group[:cap])
        if len(group) > cap:
            pending.append(group[cap:])
    groups.sort(key=len, reverse=True)

    sizes = [0] * num_clients
    opened, p = list(range(num_clients)), 0
    assignment = np.empty(len(community), np.int64)
    for group in groups:
        while len(opened) >= 2 and sizes[opened[p]] >= quota:
            opened.pop(p)
            p %= len(opened)
        tries = 0
        while sizes[opened[p]] + len(group) >= quota + delta:
            p = (p + 1) % len(opened)
            tries += 1
            if tries > 1000:
                p = _openfgl_fallback([sizes[client] for client in opened], p)
                break
        assignment[group] = opened[p]
        sizes[opened[p]] += len(group)
    return assignment


def _openfgl_fallback(sizes: list[int], p: int) -> int:
    """OpenFGL's search for the smallest client, which compares the current one instead of the candidate."""
    smallest = float("inf")
    for i in range(len(sizes)):
        if sizes[p] < smallest:
            smallest, p = sizes[p], i
    return p
