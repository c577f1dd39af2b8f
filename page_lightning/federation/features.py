"""Input features and their product with the first layer's weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from page_lightning.federation.compact import CompactRows
from page_lightning.federation.grouped import grouped_matmul
from page_lightning.federation.sparse import SparseMatrix


class Features(ABC):
    """Rows ``[N, F]``, the clients one after the other."""

    @abstractmethod
    def matmul(self, weight: Tensor) -> Tensor:
        """``x W`` with a shared ``[F, o]`` or a stacked ``[K, F, o]`` weight, ``[N, o]``."""

    @abstractmethod
    def select(self, rows: np.ndarray, sizes: tuple[int, ...]) -> Features:
        """Some of the rows, in ascending order."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """``[N, F]``."""


class DenseFeatures(Features):
    """Features as an ordinary matrix.

    Args:
        x: ``[N, F]``.
        sizes: rows per client.
    """

    def __init__(self, x: Tensor, sizes: tuple[int, ...]) -> None:
        self.x, self.sizes = x, sizes

    def matmul(self, weight: Tensor) -> Tensor:  # noqa: D102
        return self.x @ weight if weight.dim() == 2 else grouped_matmul(self.x, weight, self.sizes)

    def select(self, rows: np.ndarray, sizes: tuple[int, ...]) -> DenseFeatures:  # noqa: D102
        return DenseFeatures(self.x[torch.as_tensor(rows, device=self.x.device)], sizes)

    def to_dense(self) -> Tensor:  # noqa: D102
        return self.x


class SparseFeatures(Features):
    """Bag-of-words features: one sparse product applies every client's own weights.

    Word ``f`` of client ``k`` reads row ``k F + f`` of the stacked weights seen as ``[K F, o]``.

    Args:
        x: ``[N, F]``.
        sizes: rows per client.
        dtype: of the values.
        device: of everything.
        compact: weights come in the layout of :class:`CompactRows` (``[R, o]``) instead.
        num_groups: federations among the clients.
    """

    def __init__(
        self,
        x: sparse.csr_matrix,
        sizes: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        *,
        compact: bool,
        num_groups: int = 1,
    ) -> None:
        self._scipy, self.sizes, self._compact, self._num_groups = x, sizes, compact, num_groups
        self._shared = SparseMatrix.from_scipy(x, dtype, device)

    @cached_property
    def compact(self) -> CompactRows:
        """Which (client, word) pairs occur."""
        return CompactRows.from_words(
            self._client(), self._shared.column, len(self.sizes), self._shared.num_columns, self._num_groups
        )

    def _client(self) -> Tensor:
        slots = torch.repeat_interleave(
            torch.arange(len(self.sizes)), torch.tensor(self.sizes), output_size=sum(self.sizes)
        ).to(self._shared.column.device)
        return slots[self._shared.row]

    @cached_property
    def _stacked(self) -> SparseMatrix:
        shared, words = self._shared, self._shared.num_columns
        return SparseMatrix(
            shared.row_pointer, self._client() * words + shared.column, shared.value, len(self.sizes) * words
        )

    @cached_property
    def _compacted(self) -> SparseMatrix:
        shared, compact = self._shared, self.compact
        column = compact.row_of[self._client(), shared.column]
        return SparseMatrix(shared.row_pointer, column, shared.value, compact.num_rows)

    def matmul(self, weight: Tensor) -> Tensor:  # noqa: D102
        if self._compact:
            return self._compacted.matmul(weight)
        if weight.dim() == 2:
            return self._shared.matmul(weight)
        return self._stacked.matmul(weight.reshape(-1, weight.shape[-1]))

    def select(self, rows: np.ndarray, sizes: tuple[int, ...]) -> SparseFeatures:  # noqa: D102
        shared = self._shared
        part = SparseFeatures(self._scipy[rows], sizes, shared.value.dtype, shared.value.device, compact=self._compact)
        if self._compact:
            part.__dict__["compact"] = self.compact  # the same weights, hence the same layout
        return part

    def to_dense(self) -> Tensor:  # noqa: D102
        return torch.as_tensor(self._scipy.toarray(), dtype=self._shared.value.dtype, device=self._shared.value.device)
