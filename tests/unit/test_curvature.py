"""Gradients, Hessian-vector products and solvers on the stack against dense Hessians of one client at a time."""

import pytest
import torch
from small_graphs import different_models, make_backbone, small_graphs
from torch.func import functional_call

from page_lightning.curvature import ClientLoss, conjugate_gradient, largest_eigenvalue, lissa

ARCHITECTURES = ["GCN", "GAT", "GraphSAGE", "GIN", "SGC"]
RIDGE = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
WEIGHT = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64)


def loss_of(architecture, weight=None):
    graphs, backbone = small_graphs(), make_backbone(architecture)
    models = different_models(backbone, 3)
    return ClientLoss(backbone, models, graphs, graphs.masks["train"], weight, RIDGE), backbone, models, graphs


def dense(backbone, models, graphs, slot, weight=1.0):
    """Gradient and Hessian of one client's loss."""
    own = graphs.select([slot])
    flow = own.flow(backbone.num_hops, torch.float64, "train")
    names = [name for name, _ in backbone.named_parameters()]
    shapes = [models[name][slot].shape for name in names]

    def value(vector):
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        model = {n: part.view(shape) for n, part, shape in zip(names, parts, shapes, strict=True)}
        logits = functional_call(backbone, model, (flow,))[1]
        summed = torch.nn.functional.cross_entropy(logits, own.y[flow.target_index], reduction="sum")
        return weight * summed + RIDGE[slot] / 2 * vector.square().sum()

    start = torch.cat([models[name][slot].flatten() for name in names])
    return torch.autograd.functional.jacobian(value, start), torch.autograd.functional.hessian(value, start)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equals_the_dense_hessian_of_each_client(architecture):
    loss, backbone, models, graphs = loss_of(architecture, WEIGHT)
    vectors = torch.randn(loss.models().shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    products = loss.hessian_product(vectors)
    for slot in range(3):
        gradient, hessian = dense(backbone, models, graphs, slot, WEIGHT[slot])
        torch.testing.assert_close(loss.gradient()[slot], gradient, rtol=0, atol=1e-10)
        torch.testing.assert_close(products[slot], hessian @ vectors[slot], rtol=0, atol=1e-9)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_symmetric_and_equal_to_finite_differences(architecture):
    loss, backbone, _, graphs = loss_of(architecture)
    draws = torch.Generator().manual_seed(2)
    a, b = (torch.randn(loss.models().shape, dtype=torch.float64, generator=draws) for _ in range(2))
    left, right = (a * loss.hessian_product(b)).sum(1), (b * loss.hessian_product(a)).sum(1)
    torch.testing.assert_close(left, right)
    b, gradients = b / b.norm(), []
    for sign in (1, -1):
        moved = dict(zip(loss.names, loss.split(loss.models() + sign * 1e-5 * b), strict=True))
        other = ClientLoss(backbone, moved, graphs, graphs.masks["train"], ridge=RIDGE)
        gradients.append(other.gradient())
    difference = (gradients[0] - gradients[1]) / 2e-5
    torch.testing.assert_close(loss.hessian_product(b), difference, rtol=0, atol=1e-5)


def test_solvers_give_the_dense_solution():
    loss, backbone, models, graphs = loss_of("SGC")
    b = torch.randn(loss.models().shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    damping = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    largest = largest_eigenvalue(loss.hessian_product, b, 200)
    exact = []
    for slot in range(3):
        _, hessian = dense(backbone, models, graphs, slot)
        torch.testing.assert_close(largest[slot], torch.linalg.eigvalsh(hessian)[-1], rtol=1e-3, atol=0)
        exact.append(torch.linalg.solve(hessian + damping[slot] * torch.eye(len(hessian)), b[slot]))
    exact = torch.stack(exact)
    found = conjugate_gradient(loss.hessian_product, b, damping, 300, 1e-12)
    torch.testing.assert_close(found.x, exact, rtol=0, atol=1e-8)
    assert found.residual.max() < 1e-11
    series = lissa(loss.hessian_product, b, 1.1 * (largest + damping), damping, 400)
    torch.testing.assert_close(series.x, exact, rtol=0, atol=1e-6)


def test_lissa_is_the_truncated_series():
    matrix = torch.diag(torch.tensor([0.2, 0.9, 1.7], dtype=torch.float64))
    b, scale = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    found = lissa(lambda v: v @ matrix, b, scale, torch.zeros(1), 7)
    kept = torch.eye(3, dtype=torch.float64) - matrix / 2
    series = sum(torch.linalg.matrix_power(kept, j) for j in range(8)) / 2
    torch.testing.assert_close(found.x, b @ series, rtol=0, atol=1e-12)


def test_negative_curvature_raises_the_damping_of_that_client_alone():
    matrix = torch.stack([torch.eye(3), torch.diag(torch.tensor([-1.0, 1.0, 2.0]))]).double()
    b = torch.ones(2, 3, dtype=torch.float64)
    damping = torch.tensor([0.01, 0.2], dtype=torch.float64)
    found = conjugate_gradient(lambda v: torch.einsum("uij,uj->ui", matrix, v), b, damping, 20, 1e-12)
    assert found.damping[0] == 0.01
    assert found.damping[1] > 1
    exact = torch.linalg.solve(matrix[1] + found.damping[1] * torch.eye(3), b[1])
    torch.testing.assert_close(found.x[1], exact)
    torch.testing.assert_close(found.x[0], b[0] / 1.01)


def test_nothing_to_solve_is_zero():
    found = conjugate_gradient(lambda v: v, torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2))
    assert not found.x.any()
    assert not found.residual.any()
