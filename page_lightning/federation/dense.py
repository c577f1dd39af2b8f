"""A flow over dense weighted adjacencies through which gradients reach edges and features.

PAGE's generator (arXiv 2508.02485, Algorithm 1) optimises a graph; with a 0/1 adjacency every backbone gives the same
outputs here as on the sparse graph.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.federation.flow import Flow, Hop, Kind


class DenseHop(Hop):
    """A hop over ``B`` graphs of ``N`` nodes each.

    Args:
        x: input features ``[B, N, F]``.
        adjacency: edge weights ``[B, N, N]``, row = target, zero diagonal.
    """

    def __init__(self, x: Tensor, adjacency: Tensor) -> None:
        self.x, self.adjacency = x, adjacency
        self.target_sizes = (x.shape[1],) * x.shape[0]
        self._matrices: dict[Kind, Tensor] = {}

    def matrix(self, kind: Kind) -> Tensor:
        """The weighted adjacency ``[B, N, N]`` of a kind, differentiable."""
        if kind not in self._matrices:
            self._matrices[kind] = self._weighted(kind)
        return self._matrices[kind]

    def _weighted(self, kind: Kind) -> Tensor:
        if kind == "mean":
            total = self.adjacency.sum(-1, keepdim=True)
            return self.adjacency / total.clamp_min(torch.finfo(total.dtype).tiny)
        looped = self.adjacency + torch.eye(self.adjacency.shape[-1], dtype=self.x.dtype, device=self.x.device)
        if kind == "sum":
            return looped
        inverse = looped.sum(-1).rsqrt()
        return inverse.unsqueeze(-1) * looped * inverse.unsqueeze(-2)

    def _rows(self, x: Tensor | None) -> Tensor:
        return self.x.flatten(0, 1) if x is None else x

    def _blocks(self, x: Tensor) -> Tensor:
        return x.view(*self.x.shape[:2], x.shape[-1])

    @override
    def map(self, x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight if weight.dim() == 2 else (self._blocks(x) @ weight).flatten(0, 1)

    @override
    def convolve(self, kind: Kind, x: Tensor | None, weight: Tensor) -> Tensor:
        rows = self._rows(x)
        if weight.shape[-1] <= rows.shape[-1]:
            return self.propagate(kind, self.map(rows, weight))
        return self.map(self.propagate(kind, rows), weight)

    @override
    def propagate(self, kind: Kind, x: Tensor) -> Tensor:
        return (self.matrix(kind) @ self._blocks(x)).flatten(0, 1)

    @override
    def transform(self, x: Tensor | None, weight: Tensor) -> Tensor:
        return self.map(self._rows(x), weight)

    @override
    def targets(self, x: Tensor | None, weight: Tensor | None = None) -> Tensor:
        return self._rows(x) if weight is None else self.transform(x, weight)

    @override
    def attend(self, x: Tensor, source_score: Tensor, target_score: Tensor, slope: float) -> Tensor:
        source, target = (s.view(self.x.shape[:2]) for s in (source_score, target_score))
        score = F.leaky_relu(target.unsqueeze(-1) + source.unsqueeze(-2), slope)
        edges = self.matrix("sum")
        highest = score.detach().masked_fill(edges == 0, -torch.inf).amax(-1, keepdim=True)
        weight = edges * (score - highest).clamp_max(0).exp()
        return ((weight / weight.sum(-1, keepdim=True)) @ self._blocks(x)).flatten(0, 1)

    @override
    def rows(self, parameter: Tensor) -> Tensor:
        return parameter if parameter.dim() == 1 else parameter.repeat_interleave(self.x.shape[1], 0)


class DenseFlow(Flow):
    """Every layer over the same ``B`` dense graphs; rows are the graphs' nodes one after the other.

    Args:
        x: features ``[B, N, F]`` (or ``[N, F]`` for one graph).
        adjacency: edge weights ``[B, N, N]`` (or ``[N, N]``), without self-loops.
        num_hops: message-passing layers.
    """

    def __init__(self, x: Tensor, adjacency: Tensor, num_hops: int = 1) -> None:
        x, adjacency = (t if t.dim() == 3 else t.unsqueeze(0) for t in (x, adjacency))
        self.num_clients = x.shape[0]
        self.target_index = torch.arange(x.shape[0] * x.shape[1], device=x.device)
        self.hops = [DenseHop(x, adjacency)] * max(num_hops, 1)

    @override
    def smooth(self, kind: Kind, weight: Tensor) -> Tensor:
        x = self.hops[0].transform(None, weight)
        for hop in self.hops:
            x = hop.propagate(kind, x)
        return x

    @override
    def client_graphs(self) -> list[tuple[Tensor, Tensor]]:
        message = (
            "a module that knows PyG edges only cannot run on a dense adjacency; use one of the built-in backbones"
        )
        raise NotImplementedError(message)
