"""A different matrix for every client, applied to consecutive blocks of rows, differentiable to any order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_SKINNY = 16
"""Products with fewer columns are held transposed, which BLAS computes up to four times faster."""


class _GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
        count, width = len(rows), weight.shape[2]
        result = rows.new_empty(width, count).t() if width < _SKINNY else rows.new_empty(count, width)
        for x, w, out in zip(rows.split(sizes), weight.unbind(0), result.split(sizes), strict=True):
            torch.mm(x, w, out=out)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, tuple[int, ...]], output: Tensor) -> None:  # noqa: ANN401, ARG004
        rows, weight, ctx.sizes = inputs
        ctx.save_for_backward(rows, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        rows, weight = ctx.saved_tensors
        grad_rows = grouped_matmul(grad, weight.transpose(1, 2), ctx.sizes) if ctx.needs_input_grad[0] else None
        grad_weight = _GroupedOuter.apply(rows, grad, ctx.sizes) if ctx.needs_input_grad[1] else None
        return grad_rows, grad_weight, None


class _GroupedOuter(torch.autograd.Function):
    """The sum of outer products of each block's rows: ``[K, i, o]`` from ``[N, i]`` and ``[N, o]``."""

    @staticmethod
    def forward(left: Tensor, right: Tensor, sizes: tuple[int, ...]) -> Tensor:
        result = left.new_empty(len(sizes), right.shape[1], left.shape[1])
        for x, g, out in zip(left.split(sizes), right.split(sizes), result.unbind(0), strict=True):
            torch.mm(g.t(), x, out=out)  # a skinny right factor on the left is up to four times faster
        return result.transpose(1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, tuple[int, ...]], output: Tensor) -> None:  # noqa: ANN401, ARG004
        left, right, ctx.sizes = inputs
        ctx.save_for_backward(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # noqa: ANN401
        left, right = ctx.saved_tensors
        grad_left = grouped_matmul(right, grad.transpose(1, 2), ctx.sizes) if ctx.needs_input_grad[0] else None
        grad_right = grouped_matmul(left, grad, ctx.sizes) if ctx.needs_input_grad[1] else None
        return grad_left, grad_right, None


def grouped_matmul(rows: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Multiply the ``k``-th block of rows by the ``k``-th matrix.

    Args:
        rows: ``[N, i]``, the blocks one after the other.
        weight: ``[K, i, o]``.
        sizes: the number of rows of each block, ``K`` numbers that sum to ``N``; a block may be empty.

    Returns:
        ``[N, o]``.
    """
    result: Tensor = _GroupedMatmul.apply(rows, weight, sizes)
    return result
