"""Sparse feature matrices between SciPy and PyTorch."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def csr_tensor(row_pointer: Tensor, column: Tensor, value: Tensor, size: tuple[int, int]) -> Tensor:
    """A ``torch.sparse_csr`` tensor, without PyTorch's warnings about that layout."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(row_pointer, column, value, size=size, check_invariants=False)


def csr_from_scipy(matrix: sparse.csr_matrix) -> Tensor:
    """A SciPy CSR matrix as a ``torch.sparse_csr`` tensor."""
    row_pointer, column = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return csr_tensor(row_pointer, column, torch.from_numpy(matrix.data), matrix.shape)


def csr_to_scipy(x: Tensor) -> sparse.csr_matrix:
    """A ``torch.sparse_csr`` tensor as a SciPy CSR matrix, on the CPU."""
    arrays = (x.values().cpu().numpy(), x.col_indices().cpu().numpy(), x.crow_indices().cpu().numpy())
    return sparse.csr_matrix(arrays, shape=tuple(x.shape))
