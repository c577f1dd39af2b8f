"""Prototypes and their basis: definitions, orthonormality at scale, degenerate sets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from page_lightning.prototypes import class_prototypes, gram_schmidt, principal_basis, private_part, project


def vectors(count, width, seed=0, dtype=torch.float64, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(width, generator=generator, dtype=torch.float64)
    return (common + spread * torch.randn(count, width, generator=generator, dtype=torch.float64)).to(dtype)


def test_prototypes_are_means():
    embedding, y = vectors(40, 5), torch.arange(40) % 3
    client = torch.arange(40) // 14
    found = class_prototypes(embedding, y, client, 4, 4)
    for k in range(4):
        for c in range(4):
            members = embedding[(client == k) & (y == c)]
            assert found.count[k, c] == len(members)
            if len(members):
                torch.testing.assert_close(found.mean[k, c], members.mean(0))
            else:
                assert not found.present[k, c]
                assert found.mean[k, c].eq(0).all()


def test_prototypes_carry_gradients():
    embedding = vectors(9, 4).requires_grad_()
    y, client = torch.arange(9) % 2, torch.arange(9) // 5
    assert torch.autograd.gradcheck(lambda e: class_prototypes(e, y, client, 2, 2).mean, (embedding,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("build", [gram_schmidt, principal_basis], ids=["gram_schmidt", "svd"])
@pytest.mark.parametrize(("count", "spread"), [(5, 1.0), (300, 1e-3), (60, 1e-5)])
def test_orthonormal_even_for_many_nearly_parallel_prototypes(build, dtype, count, spread):
    basis = build(vectors(count, 64, dtype=dtype, spread=spread))
    assert basis.dtype == dtype
    error = (basis.double().T @ basis.double() - torch.eye(basis.shape[1])).abs().max()
    assert error < 1e-6


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 12), width=st.integers(2, 10), seed=st.integers(0, 1000))
def test_pythagoras_and_orthogonality(count, width, seed):
    p = vectors(6, width, seed + 1)
    for basis in (gram_schmidt(vectors(count, width, seed)), principal_basis(vectors(count, width, seed), 0.9)):
        if basis.shape[1] >= width:
            continue
        common, private = project(p, basis), private_part(p, basis)
        assert (private @ basis).abs().max() < 1e-10
        torch.testing.assert_close(p.square().sum(1), common.square().sum(1) + private.square().sum(1))
        torch.testing.assert_close(project(common, basis), common)


def test_both_bases_span_the_same_space():
    p = vectors(7, 20)
    a, b = gram_schmidt(p), principal_basis(p)
    torch.testing.assert_close(a @ a.T, b @ b.T, atol=1e-10, rtol=0)


def test_linear_dependence_adds_no_direction():
    p = vectors(3, 8)
    doubled = torch.cat([p, p.sum(0, keepdim=True), torch.zeros(1, 8, dtype=p.dtype)])
    assert gram_schmidt(doubled).shape == (8, 3)
    assert principal_basis(doubled).shape == (8, 3)


def test_energy_and_rank_limit_the_basis():
    p = vectors(30, 10)
    full, most, two = principal_basis(p), principal_basis(p, energy=0.9), principal_basis(p, max_rank=2)
    assert full.shape[1] == 10
    assert 1 <= most.shape[1] < 10
    assert two.shape[1] == 2
    scaled = p / p.norm(dim=1, keepdim=True)
    kept = project(scaled, most).square().sum() / scaled.square().sum()
    dropped = project(scaled, most[:, :-1]).square().sum() / scaled.square().sum()
    assert dropped < 0.9 <= kept


def test_no_prototype_gives_an_empty_basis():
    basis = gram_schmidt(torch.zeros(2, 4))
    assert basis.shape == (4, 0)
    p = vectors(3, 4, dtype=torch.float32)
    assert private_part(p, basis).equal(-p)
    assert principal_basis(torch.zeros(0, 4)).shape == (4, 0)


def test_a_basis_of_everything_is_warned_about():
    p = vectors(9, 4)
    with pytest.warns(UserWarning, match="span all 4 dimensions"):
        private = private_part(p, gram_schmidt(p))
    assert private.abs().max() < 1e-12
