"""The graph every federation starts from: one undirected, labelled graph, checked once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from typing_extensions import Self

from page_lightning.csr import csr_from_scipy
from page_lightning.errors import DataSourceError
from page_lightning.federation.graphs import SplitName

SPARSE_DENSITY = 0.2
"""Features with at most this share of non-zeros are held as a CSR tensor."""

SPLIT_NAMES: tuple[SplitName, ...] = ("train", "val", "test")

Features: TypeAlias = Any  # Tensor | scipy.sparse | ndarray; scipy.sparse has no types
"""What `SourceGraph.from_arrays` takes as features."""


@dataclass(frozen=True, eq=False)
class SourceGraph:
    """An undirected graph with node features and one class per node.

    Attributes:
        name: Canonical name of the data set.
        x: Features `[N, F]`, float32; strided, or `torch.sparse_csr` where at most a fifth of the entries is non-zero.
        edge_index: Both directions of every edge `[2, E]`, int64, without self-loops and duplicates, sorted by row,
            then column.
        y: Class of each node `[N]`, int64, in `[0, num_classes)`.
        num_classes: Number of classes `C`.
        masks: Official splits "train", "val" and "test", bool `[N]` or `[N, S]` for `S` splits; None without one.
        num_raw_edges: Edge count of the published data set, as PyG states it.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    y: Tensor
    num_classes: int
    masks: Mapping[SplitName, Tensor] | None
    num_raw_edges: int

    @property
    def num_nodes(self) -> int:
        """Number of nodes `N`."""
        return self.y.numel()

    @property
    def num_features(self) -> int:
        """Number of features `F`."""
        return self.x.shape[1]

    @property
    def num_edges(self) -> int:
        """Number of directed edges `E`, twice the number of undirected ones."""
        return self.edge_index.shape[1]

    def adjacency(self) -> sp.csr_matrix:
        """Symmetric 0/1 adjacency matrix `[N, N]`, float64, column indices sorted."""
        rows = np.bincount(self.edge_index[0].numpy(), minlength=self.num_nodes)
        indptr = np.concatenate([[0], np.cumsum(rows)])
        values = np.ones(self.num_edges)
        return sp.csr_matrix((values, self.edge_index[1].numpy(), indptr), shape=(self.num_nodes, self.num_nodes))

    def digest(self) -> str:
        """SHA-256 (hex) of features, edges and labels: equal exactly where the graphs are."""
        parts = [self.edge_index, self.y]
        if self.x.layout == torch.sparse_csr:
            parts += [self.x.crow_indices(), self.x.col_indices(), self.x.values()]
        else:
            parts.append(self.x)
        state = hashlib.sha256(f"{tuple(self.x.shape)} {self.num_classes}".encode())
        for part in parts:
            state.update(f"{part.dtype} {tuple(part.shape)}".encode())
            state.update(part.contiguous().numpy().data)
        return state.hexdigest()

    @classmethod
    def from_arrays(
        cls,
        name: str,
        x: Features,
        edge_index: Tensor | npt.NDArray[np.generic],
        y: Tensor | npt.NDArray[np.generic],
        *,
        num_classes: int | None = None,
        masks: Mapping[str, Tensor | npt.NDArray[np.generic]] | None = None,
        num_raw_edges: int | None = None,
    ) -> Self:
        """Check arrays and bring them into canonical form.

        Args:
            name: Name of the data set, which starts every error message.
            x: Features `[N, F]`: tensor (strided or CSR), numpy array or scipy sparse matrix.
            edge_index: Edges `[2, E]` in one or both directions, self-loops and duplicates allowed.
            y: Classes `[N]` or `[N, 1]`, integers from 0.
            num_classes: Number of classes; by default the largest label + 1.
            masks: Official splits, bool `[N]` or `[N, S]`.
            num_raw_edges: Published edge count; by default the number of directed edges kept.

        Returns:
            The graph, made symmetric.

        Raises:
            DataSourceError: A shape, a label, an edge or a feature is not what it should be.
        """
        labels = _labels(name, np.asarray(y), num_classes)
        num_nodes = len(labels)
        edges = _edges(name, np.asarray(edge_index), num_nodes)
        return cls(
            name=name,
            x=_features(name, x, num_nodes),
            edge_index=edges,
            y=torch.from_numpy(labels),
            num_classes=int(labels.max()) + 1 if num_classes is None else num_classes,
            masks=None if masks is None else _masks(name, masks, num_nodes),
            num_raw_edges=edges.shape[1] if num_raw_edges is None else num_raw_edges,
        )


def _labels(name: str, y: npt.NDArray[np.generic], num_classes: int | None) -> npt.NDArray[np.int64]:
    """Labels as a fresh int64 array `[N]`."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or not len(y):
        msg = f"data.source {name}: labels must hold one class per node, shape [N], got {list(y.shape)}"
        raise DataSourceError(msg)
    if y.dtype.kind not in "iub" and not (y.dtype.kind == "f" and np.array_equal(y, np.floor(y.astype(np.float64)))):
        msg = f"data.source {name}: labels must be integers from 0, got {y.dtype} values that are not"
        raise DataSourceError(msg)
    labels = y.astype(np.int64)
    top = num_classes if num_classes is not None else np.iinfo(np.int64).max
    bad = np.flatnonzero((labels < 0) | (labels >= top))
    if len(bad):
        msg = f"data.source {name}: label {labels[bad[0]]} of node {bad[0]} is outside [0, {num_classes or 'C'})"
        raise DataSourceError(msg)
    return labels


def _edges(name: str, edges: npt.NDArray[np.generic], num_nodes: int) -> Tensor:
    """Both directions of every edge, once, without self-loops, sorted `[2, E]`."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        msg = f"data.source {name}: edges must be integers of shape [2, E], got {edges.dtype} {list(edges.shape)}"
        raise DataSourceError(msg)
    source, target = edges.astype(np.int64)
    bad = np.flatnonzero((np.minimum(source, target) < 0) | (np.maximum(source, target) >= num_nodes))
    if len(bad):
        pair = f"({source[bad[0]]}, {target[bad[0]]})"
        msg = f"data.source {name}: edge {bad[0]} {pair} names a node outside [0, {num_nodes})"
        raise DataSourceError(msg)
    proper = source != target
    source, target = source[proper], target[proper]
    code = np.unique(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
    return torch.from_numpy(np.stack([code // num_nodes, code % num_nodes]))


def _features(name: str, x: Features, num_nodes: int) -> Tensor:
    """Features as a fresh float32 tensor `[N, F]`, CSR where few entries are non-zero."""
    if isinstance(x, Tensor) and x.layout == torch.sparse_csr:
        parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        x = sp.csr_matrix(parts, shape=tuple(x.shape))
    matrix = x if sp.issparse(x) else np.asarray(x)
    if len(matrix.shape) != 2 or matrix.shape[0] != num_nodes or not matrix.shape[1]:
        msg = f"data.source {name}: features must have shape [{num_nodes}, F], got {list(matrix.shape)}"
        raise DataSourceError(msg)
    if matrix.dtype.kind not in "fiub":
        msg = f"data.source {name}: features must be numbers, got {matrix.dtype}"
        raise DataSourceError(msg)
    cells = num_nodes * matrix.shape[1]
    if sp.issparse(matrix):
        matrix = sp.csr_matrix(matrix, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _check_finite(name, matrix.data, matrix.indptr)
        if matrix.nnz > SPARSE_DENSITY * cells:
            return torch.from_numpy(matrix.toarray())
    else:
        matrix = np.array(matrix, dtype=np.float32, order="C")
        _check_finite(name, matrix.ravel(), np.arange(0, cells + 1, matrix.shape[1]))
        if np.count_nonzero(matrix) > SPARSE_DENSITY * cells:
            return torch.from_numpy(matrix)
        matrix = sp.csr_matrix(matrix)
    return csr_from_scipy(matrix)


def _check_finite(name: str, values: npt.NDArray[np.float32], row_start: npt.NDArray[np.integer]) -> None:
    """Raise where a value is NaN or infinite, naming its row."""
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row = np.searchsorted(row_start, bad[0], side="right") - 1
        msg = f"data.source {name}: {len(bad)} feature values are NaN or infinite, the first at node {row}"
        raise DataSourceError(msg)


def _masks(name: str, masks: Mapping[str, Tensor | npt.NDArray[np.generic]], num_nodes: int) -> dict[SplitName, Tensor]:
    """Official masks as bool tensors `[N]` or `[N, S]`."""
    if set(masks) != set(SPLIT_NAMES):
        msg = f"data.source {name}: official masks must be named {', '.join(SPLIT_NAMES)}, got {', '.join(masks)}"
        raise DataSourceError(msg)
    arrays = {split: np.asarray(masks[split]) for split in SPLIT_NAMES}
    shapes = {array.shape for array in arrays.values()}
    shape = next(iter(shapes))
    if len(shapes) > 1 or shape[0] != num_nodes or len(shape) > 2:
        msg = f"data.source {name}: official masks must have shape [{num_nodes}] or [{num_nodes}, S], all the same"
        raise DataSourceError(msg)
    return {split: torch.from_numpy(array.astype(bool)) for split, array in arrays.items()}
