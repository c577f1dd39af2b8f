"""Sparse feature matrices between SciPy and PyTorch."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def csr_from_scipy(matrix: sparse.csr_matrix) -> Tensor:
    """A SciPy CSR matrix as a ``torch.sparse_csr`` tensor, without PyTorch's warnings about that layout."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data),
            size=matrix.shape,
            check_invariants=False,
        )


def csr_to_scipy(x: Tensor) -> sparse.csr_matrix:
    """A ``torch.sparse_csr`` tensor as a SciPy CSR matrix, on the CPU."""
    arrays = (x.values().cpu().numpy(), x.col_indices().cpu().numpy(), x.crow_indices().cpu().numpy())
    return sparse.csr_matrix(arrays, shape=tuple(x.shape))
