"""Class prototypes, an orthonormal basis of them, and what lies outside it (PAGE, arXiv 2508.02485, Eq. 4-8)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Mean embeddings per client and class.

    Args:
        mean: ``[K, C, d]``; zero where a class is absent.
        count: nodes behind each mean, ``[K, C]``.
    """

    mean: Tensor
    count: Tensor

    @property
    def present(self) -> Tensor:
        """Which classes a client has, bool ``[K, C]``; absent ones must not enter a basis or a loss."""
        return self.count > 0


def class_prototypes(embedding: Tensor, y: Tensor, client: Tensor, num_clients: int, num_classes: int) -> Prototypes:
    """Mean embedding of each class on each client (Eq. 4, and Eq. 6 on the request's nodes); differentiable.

    Args:
        embedding: of the nodes to average, ``[n, d]``.
        y: their classes, int64 ``[n]``.
        client: their clients, int64 ``[n]``.
        num_clients: ``K``.
        num_classes: ``C``.
    """
    cell = client * num_classes + y
    count = torch.bincount(cell, minlength=num_clients * num_classes)
    total = embedding.new_zeros(num_clients * num_classes, embedding.shape[1]).index_add(0, cell, embedding)
    mean = total / count.clamp(min=1).unsqueeze(1).to(embedding.dtype)
    return Prototypes(mean.view(num_clients, num_classes, -1), count.view(num_clients, num_classes))


def gram_schmidt(vectors: Tensor, tolerance: float = 1e-6) -> Tensor:
    """An orthonormal basis of the span of some vectors, by two-pass modified Gram-Schmidt in double precision.

    The formula as printed in the paper subtracts un-normalised vectors and is useless beyond a few dozen prototypes.

    Args:
        vectors: ``[M, d]``.
        tolerance: a vector whose remainder is shorter than this share of it adds no direction.

    Returns:
        ``[d, r]`` with ``r <= min(M, d)`` orthonormal columns, in the precision of ``vectors``.
    """
    basis: list[Tensor] = []
    for vector in vectors.double():
        length, rest = vector.norm(), vector
        for _ in range(2):
            for direction in basis:
                rest = rest - (rest @ direction) * direction
        if length > 0 and rest.norm() > tolerance * length and len(basis) < vectors.shape[1]:
            basis.append(rest / rest.norm())
    if not basis:
        return vectors.new_zeros(vectors.shape[1], 0)
    return torch.stack(basis, 1).to(vectors.dtype)


def principal_basis(
    vectors: Tensor, energy: float = 1.0, max_rank: int | None = None, tolerance: float = 1e-6
) -> Tensor:
    """The leading directions of some vectors, each first scaled to length one, by SVD in double precision.

    Args:
        vectors: ``[M, d]``; zero vectors are left out.
        energy: keep the fewest directions that hold this share of the squared length, in (0, 1].
        max_rank: keep at most this many.
        tolerance: directions with a singular value below this share of the largest are noise.

    Returns:
        ``[d, r]`` with orthonormal columns, in the precision of ``vectors``.
    """
    scaled = vectors.double()
    length = scaled.norm(dim=1, keepdim=True)
    scaled = (scaled / length)[length.squeeze(1) > 0]
    if len(scaled) == 0:
        return vectors.new_zeros(vectors.shape[1], 0)
    _, singular, right = torch.linalg.svd(scaled, full_matrices=False)
    rank = int((singular > tolerance * singular[0]).sum())
    if energy < 1:
        share = singular.square().cumsum(0) / singular.square().sum()
        rank = min(rank, int((share < energy).sum()) + 1)
    if max_rank is not None:
        rank = min(rank, max_rank)
    leading: Tensor = right[:rank].T.contiguous().to(vectors.dtype)
    return leading


def project(vectors: Tensor, basis: Tensor) -> Tensor:
    """The part of vectors inside the span of a basis: ``p V V^T`` (Eq. 7).

    Args:
        vectors: ``[.., d]``.
        basis: ``[d, r]`` with orthonormal columns.
    """
    return vectors @ basis @ basis.T


def private_part(vectors: Tensor, basis: Tensor) -> Tensor:
    """``p_priv = p_com - p``: orthogonal to the basis (Eq. 8), and the negative gradient of ``|p - p_com|^2 / 2``.

    Warns where the basis spans the whole space: every private part is then zero, and a method that uses it does
    nothing. Limit the rank there.

    Args:
        vectors: ``[.., d]``.
        basis: ``[d, r]`` with orthonormal columns.
    """
    if basis.shape[1] >= basis.shape[0]:
        warnings.warn(
            f"{basis.shape[1]} prototypes span all {basis.shape[0]} dimensions of the embedding: private parts are "
            "zero; limit the basis (energy or max_rank) or widen the hidden layer",
            stacklevel=2,
        )
    return project(vectors, basis) - vectors
