"""Sparse times dense products that differentiate to any order, with a fixed pattern held as plain index tensors.

``torch.func`` and double backward reject CSR tensors, and in single precision PyTorch's own CSR product is two to three
times slower on a CPU than ``embedding_bag`` over the same arrays (in double precision as much faster). So a pattern is
an opaque :class:`SparseMatrix`, and the two operations that are closed under differentiation are here: the weighted sum
over a row's entries (:func:`spmm`) and the inner product at each entry (:func:`sddmm`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from page_lightning.csr import csr_tensor


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A sparse ``[R, C]`` matrix by rows, together with its transpose.

    Args:
        row_pointer: where each row's entries begin, int64 ``[R + 1]``.
        column: the column of each entry, int64 ``[E]``.
        value: the entries ``[E]``; ones where the pattern alone matters.
        num_columns: ``C``.
    """

    row_pointer: Tensor
    column: Tensor
    value: Tensor
    num_columns: int

    @classmethod
    def from_scipy(cls, matrix: sparse.csr_matrix, dtype: torch.dtype, device: torch.device) -> SparseMatrix:
        """Take over the arrays of a SciPy CSR matrix."""
        return cls(
            torch.as_tensor(matrix.indptr.astype(np.int64), device=device),
            torch.as_tensor(matrix.indices.astype(np.int64), device=device),
            torch.as_tensor(matrix.data, dtype=dtype, device=device),
            int(matrix.shape[1]),
        )

    @property
    def num_rows(self) -> int:
        """``R``."""
        return len(self.row_pointer) - 1

    @cached_property
    def row(self) -> Tensor:
        """The row of each entry, int64 ``[E]``."""
        index = torch.arange(self.num_rows, device=self.column.device)
        return torch.repeat_interleave(index, self.row_pointer.diff(), output_size=len(self.column))

    @cached_property
    def _transposed_order(self) -> Tensor:
        return torch.argsort(self.column, stable=True)

    @cached_property
    def transposed(self) -> SparseMatrix:
        """The same matrix by columns."""
        count = torch.bincount(self.column, minlength=self.num_columns)
        order = self._transposed_order
        pointer = F.pad(count.cumsum(0), (1, 0))
        return SparseMatrix(pointer, self.row[order], self.value[order], self.num_rows)

    def matmul(self, dense: Tensor) -> Tensor:
        """``self @ dense`` for ``dense`` of shape ``[C, d]``."""
        return spmm(self, self.value, dense)

    def transpose_values(self, value: Tensor) -> Tensor:
        """Reorder one value per entry from row order to column order."""
        return self.transposed.value if value is self.value else value[self._transposed_order]


def _weighted_row_sum(pattern: SparseMatrix, value: Tensor, dense: Tensor) -> Tensor:
    if dense.dtype == torch.float64 and dense.device.type == "cpu":  # embedding_bag's fast path is single precision
        size = (pattern.num_rows, len(dense))
        return csr_tensor(pattern.row_pointer, pattern.column, value, size) @ dense
    return F.embedding_bag(
        pattern.column, dense, pattern.row_pointer, mode="sum", per_sample_weights=value, include_last_offset=True
    )


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(pattern: SparseMatrix, value: Tensor, dense: Tensor) -> Tensor:
        return _weighted_row_sum(pattern, value, dense.contiguous())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.pattern, value, dense = inputs
        ctx.save_for_backward(value, dense if value.requires_grad else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:  # noqa: ANN401
        pattern, (value, dense) = ctx.pattern, ctx.saved_tensors
        by_column = pattern.transposed
        grad_value = sddmm(pattern, grad, dense) if ctx.needs_input_grad[1] else None
        grad_dense = None
        if ctx.needs_input_grad[2]:
            grad_dense = spmm(by_column, pattern.transpose_values(value), grad)
        return None, grad_value, grad_dense


class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(pattern: SparseMatrix, left: Tensor, right: Tensor) -> Tensor:
        return (left[pattern.row] * right[pattern.column]).sum(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[SparseMatrix, Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004
        ctx.pattern, left, right = inputs
        ctx.save_for_backward(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:  # noqa: ANN401
        pattern, (left, right) = ctx.pattern, ctx.saved_tensors
        grad_left = spmm(pattern, grad, right) if ctx.needs_input_grad[1] else None
        grad_right = None
        if ctx.needs_input_grad[2]:
            grad_right = spmm(pattern.transposed, pattern.transpose_values(grad), left)
        return None, grad_left, grad_right


def spmm(pattern: SparseMatrix, value: Tensor, dense: Tensor) -> Tensor:
    """Row ``r`` of the result is the sum over the entries ``(r, c)`` of ``value * dense[c]``.

    Args:
        pattern: a ``[R, C]`` pattern; its own ``value`` is not read.
        value: one factor per entry ``[E]``, in row order.
        dense: ``[C, d]``.

    Returns:
        ``[R, d]``.
    """
    result: Tensor = _Spmm.apply(pattern, value, dense)
    return result


def sddmm(pattern: SparseMatrix, left: Tensor, right: Tensor) -> Tensor:
    """The inner product of ``left[r]`` and ``right[c]`` at every entry ``(r, c)``, ``[E]`` in row order.

    Args:
        pattern: a ``[R, C]`` pattern.
        left: ``[R, d]``.
        right: ``[C, d]``.
    """
    result: Tensor = _Sddmm.apply(pattern, left, right)
    return result
