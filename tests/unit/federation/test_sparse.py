"""Sparse products against dense ones, to second order."""

import numpy as np
import pytest
import torch
from scipy import sparse as sp
from torch.autograd import gradcheck, gradgradcheck

from page_lightning.federation.sparse import SparseMatrix, sddmm, spmm


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    dense = (rng.random((6, 5)) < 0.4) * rng.standard_normal((6, 5))
    dense[2], dense[:, 3] = 0, 0  # an empty row and an empty column
    return SparseMatrix.from_scipy(sp.csr_matrix(dense), torch.float64, torch.device("cpu")), torch.from_numpy(dense)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def densify(pattern, value):
    return torch.zeros(pattern.num_rows, pattern.num_columns, dtype=value.dtype).index_put(
        (pattern.row, pattern.column), value
    )


def test_matmul_and_transpose_equal_dense(matrix):
    pattern, dense = matrix
    right, left = randn(5, 3), randn(6, 3)
    torch.testing.assert_close(pattern.matmul(right), dense @ right)
    torch.testing.assert_close(pattern.transposed.matmul(left), dense.t() @ left)


def test_transposed_values_are_in_column_order(matrix):
    pattern, _ = matrix
    assert pattern.transpose_values(pattern.value).equal(pattern.transposed.value)
    assert pattern.transpose_values(pattern.value * 2).equal(pattern.transposed.value * 2)


def test_spmm_with_other_values_equals_dense(matrix):
    pattern, _ = matrix
    value, right = randn(len(pattern.value)), randn(5, 3)
    torch.testing.assert_close(spmm(pattern, value, right), densify(pattern, value) @ right)


def test_sddmm_equals_dense(matrix):
    pattern, _ = matrix
    left, right = randn(6, 3), randn(5, 3, seed=1)
    torch.testing.assert_close(sddmm(pattern, left, right), (left @ right.t())[pattern.row, pattern.column])


def test_gradients_to_second_order(matrix):
    pattern, _ = matrix
    value, right, left = randn(len(pattern.value)), randn(5, 2), randn(6, 2)
    for check in (gradcheck, gradgradcheck):
        assert check(lambda v, d: spmm(pattern, v, d), (value, right))
        assert check(lambda d: pattern.matmul(d), (right,))
        assert check(lambda a, b: sddmm(pattern, a, b), (left, right))


def test_torch_func_transforms(matrix):
    pattern, dense = matrix
    right = randn(5, 2).detach()

    def ours(d):
        return pattern.matmul(d).pow(3).sum()

    def reference(d):
        return (dense @ d).pow(3).sum()

    torch.testing.assert_close(torch.func.grad(ours)(right), torch.func.grad(reference)(right))
    vector = randn(5, 2, seed=2).detach()

    def hessian_vector_product(loss):
        return torch.func.grad(lambda d: (torch.func.grad(loss)(d) * vector).sum())(right)

    torch.testing.assert_close(hessian_vector_product(ours), hessian_vector_product(reference))
    hessian = torch.autograd.functional.hessian
    torch.testing.assert_close(hessian(ours, right), torch.func.hessian(reference)(right))
