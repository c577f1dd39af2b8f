"""What a backbone runs on: one hop per message-passing layer, for all clients together.

A weight may be shared by all rows (``[i, o]``: one model for everybody) or stacked (``[K, i, o]``: a model per client);
hops tell the two apart by the number of dimensions, so a backbone is written once. Rows are nodes, client after client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from page_lightning.csr import csr_to_scipy
from page_lightning.federation.features import DenseFeatures, Features, SparseFeatures
from page_lightning.federation.grouped import grouped_matmul
from page_lightning.federation.randomness import DropoutStream
from page_lightning.federation.sparse import SparseMatrix, spmm

if TYPE_CHECKING:
    from page_lightning.federation.graphs import ClientGraphs

Kind = Literal["symmetric", "mean", "sum"]
"""Adjacency: GCN's ``D^-1/2 (A + I) D^-1/2``, the mean over neighbours ``D^-1 A``, or the plain ``A + I``."""


class Hop(ABC):
    """One round of message passing, from source rows to target rows.

    ``None`` in place of ``x`` means the input features, which a hop may hold sparse or already propagated.
    """

    target_sizes: tuple[int, ...]
    noise: DropoutStream | None = None

    @abstractmethod
    def convolve(self, kind: Kind, x: Tensor | None, weight: Tensor) -> Tensor:
        """``A x W`` in the cheapest order, ``[N_target, o]``."""

    @abstractmethod
    def propagate(self, kind: Kind, x: Tensor) -> Tensor:
        """``A x``, ``[N_target, d]``."""

    @abstractmethod
    def transform(self, x: Tensor | None, weight: Tensor) -> Tensor:
        """``x W`` for the source rows, ``[N_source, o]``."""

    @abstractmethod
    def targets(self, x: Tensor | None, weight: Tensor | None = None) -> Tensor:
        """``x`` (or ``x W``) for the target rows, ``[N_target, o]``."""

    @abstractmethod
    def map(self, x: Tensor, weight: Tensor) -> Tensor:
        """``x W`` for rows that are target rows already, ``[N_target, o]``."""

    @abstractmethod
    def attend(self, x: Tensor, source_score: Tensor, target_score: Tensor, slope: float) -> Tensor:
        """GAT's weighted mean: weights are the softmax of ``leaky_relu(source_score + target_score)``.

        Args:
            x: ``[N_source, d]``.
            source_score: ``[N_source]``.
            target_score: ``[N_source]``, read at the target rows.
            slope: of the leaky ReLU.
        """

    @abstractmethod
    def rows(self, parameter: Tensor) -> Tensor:
        """A vector per model (``[d]`` shared or ``[K, d]``) as something that broadcasts over target rows."""

    def relu_dropout(self, x: Tensor, probability: float) -> Tensor:
        """``dropout(relu(x))`` of target rows in one multiplication; no dropout where the flow has no noise."""
        if self.noise is None or probability == 0.0:
            return F.relu(x)
        keep = self.noise.keep(self.target_sizes, x.shape[1], probability)
        return x * ((x > 0) & keep).to(x.dtype).mul_(1 / (1 - probability))


class Flow(ABC):
    """The hops of one graph stack.

    Attributes:
        hops: one per message-passing layer.
        num_clients: blocks of rows.
        target_index: the nodes whose outputs the last hop gives, int64 ``[N_target]``.
    """

    hops: Sequence[Hop]
    num_clients: int
    target_index: Tensor

    @abstractmethod
    def smooth(self, kind: Kind, weight: Tensor) -> Tensor:
        """The input features propagated through every hop, times ``W``: ``A ... A X W`` for the last targets."""

    @abstractmethod
    def client_graphs(self) -> list[tuple[Tensor, Tensor]]:
        """Features ``[N_k, F]`` and edges ``[2, E_k]`` of each client, for modules that know one graph at a time."""

    @property
    def noise(self) -> DropoutStream | None:
        """Where dropout masks come from; none means evaluation."""
        return self.hops[0].noise

    @noise.setter
    def noise(self, noise: DropoutStream | None) -> None:
        for hop in self.hops:
            hop.noise = noise


def apply_weight(x: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """``x W`` with a shared ``[i, o]`` or a stacked ``[K, i, o]`` weight."""
    return x @ weight if weight.dim() == 2 else grouped_matmul(x, weight, sizes)


class SparseHop(Hop):
    """A hop over the clients' sparse graphs.

    Args:
        adjacency: neighbours, ``[N_target, N_source]`` ones without self-loops.
        degree: of the source rows in the whole graph, ``[N_source]``.
        position: of each target among the sources, ``[N_target]``.
        source_sizes: source rows per client.
        target_sizes: target rows per client.
        dtype: of edge weights.
        device: of everything.
        features: input features of the source rows, for the first hop.
    """

    def __init__(
        self,
        adjacency: sparse.csr_matrix,
        degree: np.ndarray,
        position: np.ndarray,
        source_sizes: tuple[int, ...],
        target_sizes: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        features: Features | None = None,
    ) -> None:
        self.adjacency, self.degree = adjacency, degree
        self.source_sizes, self.target_sizes = source_sizes, target_sizes
        self.dtype, self.device = dtype, device
        self.features = features
        self._numpy_position = position
        self._position = torch.as_tensor(position, device=device)
        self._everything = adjacency.shape[0] == adjacency.shape[1]
        self._matrices: dict[Kind, SparseMatrix] = {}
        self._propagated: dict[Kind, Features] = {}

    def matrix(self, kind: Kind) -> SparseMatrix:
        """The adjacency with its weights, ``[N_target, N_source]``."""
        if kind not in self._matrices:
            self._matrices[kind] = SparseMatrix.from_scipy(self._weighted(kind), self.dtype, self.device)
        return self._matrices[kind]

    def _weighted(self, kind: Kind) -> sparse.csr_matrix:
        adjacency = self.adjacency.astype(np.float64)
        if kind == "mean":
            inverse = 1 / np.maximum(self.degree[self._numpy_position], 1)
            return sparse.csr_matrix(sparse.diags(inverse) @ adjacency)
        count = len(self._numpy_position)
        loops = sparse.csr_matrix((np.ones(count), self._numpy_position, np.arange(count + 1)), adjacency.shape)
        looped = sparse.csr_matrix(adjacency + loops)
        if kind == "sum":
            return looped
        inverse = (self.degree + 1.0) ** -0.5
        return sparse.csr_matrix(sparse.diags(inverse[self._numpy_position]) @ looped @ sparse.diags(inverse))

    @cached_property
    def _membership(self) -> SparseMatrix:
        count = sum(self.target_sizes)
        slot = np.repeat(np.arange(len(self.target_sizes)), self.target_sizes)
        matrix = sparse.csr_matrix((np.ones(count), slot, np.arange(count + 1)), (count, len(self.target_sizes)))
        return SparseMatrix.from_scipy(matrix, self.dtype, self.device)

    @cached_property
    def _target_features(self) -> Features:
        return self._input.select(self._numpy_position, self.target_sizes)

    @property
    def _input(self) -> Features:
        if self.features is None:
            message = "only the first hop has input features"
            raise ValueError(message)
        return self.features

    def convolve(self, kind: Kind, x: Tensor | None, weight: Tensor) -> Tensor:  # noqa: D102
        if x is None:
            if isinstance(self._input, DenseFeatures):
                if kind not in self._propagated:
                    self._propagated[kind] = DenseFeatures(self.propagate(kind, self._input.x), self.target_sizes)
                return self._propagated[kind].matmul(weight)
            return self.propagate(kind, self._input.matmul(weight))
        if weight.shape[-1] <= x.shape[1]:
            return self.propagate(kind, apply_weight(x, weight, self.source_sizes))
        return apply_weight(self.propagate(kind, x), weight, self.target_sizes)

    def propagate(self, kind: Kind, x: Tensor) -> Tensor:  # noqa: D102
        return self.matrix(kind).matmul(x)

    def transform(self, x: Tensor | None, weight: Tensor) -> Tensor:  # noqa: D102
        return self._input.matmul(weight) if x is None else apply_weight(x, weight, self.source_sizes)

    def targets(self, x: Tensor | None, weight: Tensor | None = None) -> Tensor:  # noqa: D102
        if x is None:
            return self._target_features.matmul(weight) if weight is not None else self._target_features.to_dense()
        chosen = x if self._everything else x[self._position]
        return chosen if weight is None else apply_weight(chosen, weight, self.target_sizes)

    def map(self, x: Tensor, weight: Tensor) -> Tensor:  # noqa: D102
        return apply_weight(x, weight, self.target_sizes)

    def attend(self, x: Tensor, source_score: Tensor, target_score: Tensor, slope: float) -> Tensor:  # noqa: D102
        pattern = self.matrix("sum")
        at_target = target_score if self._everything else target_score.index_select(0, self._position)
        score = source_score.index_select(0, pattern.column) + at_target.index_select(0, pattern.row)
        score = F.leaky_relu(score, slope)
        highest = torch.segment_reduce(score.detach(), "max", offsets=pattern.row_pointer)
        weight = (score - highest.index_select(0, pattern.row)).exp()
        total = spmm(pattern, weight, x.new_ones(pattern.num_columns, 1))
        return spmm(pattern, weight, x) / total

    def rows(self, parameter: Tensor) -> Tensor:  # noqa: D102
        return parameter if parameter.dim() == 1 else self._membership.matmul(parameter)


class SparseFlow(Flow):
    """Hops over the clients' graphs, restricted to the rows that the wanted outputs depend on.

    Args:
        hops: first to last.
        graphs: where the rows come from.
        target_index: nodes whose outputs the last hop gives, int64 ``[N_target]``.
        reach: source nodes of the first hop, int64.
    """

    hops: Sequence[SparseHop]

    def __init__(self, hops: Sequence[SparseHop], graphs: ClientGraphs, target_index: Tensor, reach: Tensor) -> None:
        self.hops = hops
        self.graphs = graphs
        self.num_clients = graphs.num_clients
        self.target_index, self.reach = target_index, reach
        self._smoothed: dict[Kind, Features] = {}

    @classmethod
    def build(
        cls, graphs: ClientGraphs, num_hops: int, dtype: torch.dtype, mask: Tensor | None, *, compact: bool
    ) -> SparseFlow:
        """Walk back from the wanted nodes; see :meth:`ClientGraphs.flow`."""
        source, target = graphs.edge_index.cpu().numpy()
        shape = (graphs.num_nodes, graphs.num_nodes)
        adjacency = sparse.csr_matrix((np.ones(len(source), dtype=np.int8), (target, source)), shape)
        degree = np.bincount(target, minlength=graphs.num_nodes).astype(np.float64)
        client = graphs.client.cpu().numpy()
        wanted = np.arange(graphs.num_nodes) if mask is None else np.flatnonzero(mask.cpu().numpy())
        target_rows, hops = wanted, []
        for _ in range(max(num_hops, 1)):
            rows = adjacency[target_rows] if len(target_rows) < graphs.num_nodes else adjacency
            if num_hops == 0:
                source_rows, rows = target_rows, rows[:, target_rows]
            else:
                source_rows = np.union1d(target_rows, rows.indices)
                rows = rows if len(source_rows) == graphs.num_nodes else rows[:, source_rows]
            rows.sort_indices()
            hops.append(
                SparseHop(
                    rows,
                    degree[source_rows],
                    np.searchsorted(source_rows, target_rows),
                    _sizes(client, source_rows, graphs.num_clients),
                    _sizes(client, target_rows, graphs.num_clients),
                    dtype,
                    graphs.device,
                )
            )
            target_rows = source_rows
        hops.reverse()
        reach = torch.as_tensor(target_rows, device=graphs.device)
        hops[0].features = _features(graphs, target_rows, hops[0].source_sizes, dtype, compact=compact)
        return cls(hops, graphs, torch.as_tensor(wanted, device=graphs.device), reach)

    def smooth(self, kind: Kind, weight: Tensor) -> Tensor:  # noqa: D102
        features = self.hops[0].features
        if isinstance(features, DenseFeatures):
            if kind not in self._smoothed:
                x = features.x
                for hop in self.hops:
                    x = hop.propagate(kind, x)
                self._smoothed[kind] = DenseFeatures(x, self.hops[-1].target_sizes)
            return self._smoothed[kind].matmul(weight)
        x = self.hops[0].transform(None, weight)
        for hop in self.hops:
            x = hop.propagate(kind, x)
        return x

    def client_graphs(self) -> list[tuple[Tensor, Tensor]]:  # noqa: D102
        dtype = self.hops[0].dtype
        x = self.graphs.x.to_dense().to(dtype)
        client = self.graphs.client[self.graphs.edge_index[0]]
        start, result = 0, []
        for slot, size in enumerate(self.graphs.sizes):
            edges = self.graphs.edge_index[:, client == slot] - start
            result.append((x[start : start + size], edges))
            start += size
        return result


def _sizes(client: np.ndarray, rows: np.ndarray, num_clients: int) -> tuple[int, ...]:
    return tuple(np.bincount(client[rows], minlength=num_clients).tolist())


def _features(
    graphs: ClientGraphs, rows: np.ndarray, sizes: tuple[int, ...], dtype: torch.dtype, *, compact: bool
) -> Features:
    if graphs.x.layout == torch.sparse_csr:
        x = csr_to_scipy(graphs.x)[rows]
        return SparseFeatures(x, sizes, dtype, graphs.device, compact=compact, num_groups=graphs.num_groups)
    everything = len(rows) == graphs.num_nodes
    x = graphs.x if everything else graphs.x[torch.as_tensor(rows, device=graphs.device)]
    return DenseFeatures(x.to(dtype), sizes)
