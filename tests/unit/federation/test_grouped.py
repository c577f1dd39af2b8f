"""Grouped products against a loop, to second order, with empty blocks."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from page_lightning.federation.grouped import grouped_matmul

SIZES = (3, 0, 4, 1, 0)


@pytest.fixture
def operands():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(SIZES), 3, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(len(SIZES), 3, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    return rows, weight


def loop(rows, weight):
    return torch.cat([x @ w for x, w in zip(rows.split(SIZES), weight, strict=True)])


def test_product_and_gradients_equal_a_loop(operands):
    ours, reference = grouped_matmul(*operands, SIZES), loop(*operands)
    torch.testing.assert_close(ours, reference)
    grads = (torch.autograd.grad(y.pow(2).sum(), operands) for y in (ours, reference))
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_client_without_rows_gets_a_zero_gradient(operands):
    _, grad = torch.autograd.grad(grouped_matmul(*operands, SIZES).sum(), operands)
    assert grad[1].eq(0).all()
    assert grad[4].eq(0).all()
    assert grad[3].ne(0).any()


def test_gradients_to_second_order(operands):
    assert gradcheck(lambda x, w: grouped_matmul(x, w, SIZES), operands)
    assert gradgradcheck(lambda x, w: grouped_matmul(x, w, SIZES), operands)


def test_torch_func_grad(operands):
    rows, weight = (t.detach() for t in operands)
    vector = torch.ones_like(weight)

    def hessian_vector_product(product):
        def gradient(w):
            return torch.func.grad(lambda v: product(rows, v).pow(3).sum())(w)

        return torch.func.grad(lambda w: (gradient(w) * vector).sum())(weight)

    ours = hessian_vector_product(lambda x, w: grouped_matmul(x, w, SIZES))
    torch.testing.assert_close(ours, hessian_vector_product(loop))
