"""A cheap model that never saw the forgotten data: ridge regression on propagated features, in closed form.

It says *which* forgotten nodes should now be wrong, and how sure of them a model that never saw them would be. Clients
share one Gram matrix; each also has a ridge of its own; their averaged probabilities are the teacher.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.randomness import stream_key

_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def propagated_features(graphs: ClientGraphs, num_hops: int, width: int, seed: int) -> Tensor:
    """``S^K X`` with ``S = D^-1/2 (A + I) D^-1/2``, at most ``width`` columns, in double precision ``[N, w]``.

    Wider features are multiplied by one random matrix that all clients know from the seed (Johnson-Lindenstrauss).

    Args:
        graphs: the clients.
        num_hops: ``K``.
        width: most columns.
        seed: of the random matrix.
    """
    flow = graphs.flow(num_hops, torch.float32)
    if graphs.num_features > width:
        draws = torch.Generator(graphs.device).manual_seed(stream_key(seed, 11) >> 1)
        mixing = torch.randn(graphs.num_features, width, generator=draws, device=graphs.device) * width**-0.5
        return flow.smooth("symmetric", mixing).double()
    return flow.smooth("symmetric", torch.eye(graphs.num_features, device=graphs.device)).double()


@dataclass(frozen=True, eq=False)
class GramMessage:
    """What a client sends for the shared ridge: all that the closed form needs.

    Args:
        gram: ``P^T P`` of its training nodes ``[w, w]``.
        moment: ``P^T (Y - 1/C)`` ``[w, C]``.
    """

    gram: Tensor
    moment: Tensor


def gram_message(features: Tensor, y: Tensor, num_classes: int) -> GramMessage:
    """A client's part of the shared ridge, from its training nodes ``[n, w]`` and their classes ``[n]``."""
    wanted = F.one_hot(y, num_classes).to(features.dtype) - 1 / num_classes
    return GramMessage(features.T @ features, features.T @ wanted)


def solve_ridge(gram: Tensor, moment: Tensor, strength: float) -> Tensor:
    """``(G + strength * mean(diag G) I)^-1 M``, ``[w, C]``."""
    penalty = strength * gram.diagonal().mean().clamp(min=1e-12)
    factor = torch.linalg.cholesky(gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
    return torch.cholesky_solve(moment, factor)


def matched_temperature(scores: Tensor, confidence: Tensor) -> Tensor:
    """The factor on scores at which their mean confidence meets a given one, a scalar.

    Args:
        scores: ``[n, C]``.
        confidence: mean largest probability to meet, a scalar in (1/C, 1).
    """
    low, high = scores.new_tensor(1e-3), scores.new_tensor(1e4)
    for _ in range(60):
        middle = (low * high).sqrt()
        too_sure = (middle * scores).softmax(1).amax(1).mean() > confidence
        low, high = torch.where(too_sure, low, middle), torch.where(too_sure, middle, high)
    return (low * high).sqrt()


@torch.no_grad()
def never_saw_answers(
    retained: ClientGraphs,
    clients: ClientGraphs,
    nodes: Tensor,
    local_logits: Tensor,
    num_hops: int = 2,
    width: int = 1024,
    seed: int = 0,
    parts: tuple[str, ...] = ("shared", "local"),
) -> tuple[Tensor, list[GramMessage]]:
    """Probabilities of forgotten nodes under models that never saw them.

    The strength of each ridge is the best on validation nodes, its temperature the one at which its mean confidence on
    a client's validation nodes equals the original local model's there.

    Args:
        retained: graphs without the request's data; all that is fitted.
        clients: graphs in which the nodes are queried, with the same slots.
        nodes: rows of ``clients``, int64 ``[n]``.
        local_logits: of the original local models on the nodes of ``retained`` ``[N, C]``.
        num_hops: of the propagation.
        width: most columns of the propagated features.
        seed: of their random matrix.
        parts: ridges to average: ``shared``, ``local``.

    Returns:
        Probabilities ``[n, C]``, and each client's message.
    """
    classes = retained.num_classes
    x_kept = propagated_features(retained, num_hops, width, seed)
    x_asked = propagated_features(clients, num_hops, width, seed)[nodes]
    train, val = retained.masks["train"], retained.masks["val"]
    slots = range(retained.num_clients)
    rows = [torch.nonzero(train & (retained.client == slot)).squeeze(1) for slot in slots]
    messages = [gram_message(x_kept[own], retained.y[own], classes) for own in rows]
    gram = torch.stack([message.gram for message in messages]).sum(0)
    moment = torch.stack([message.moment for message in messages]).sum(0)
    candidates = [solve_ridge(gram, moment, strength) for strength in _STRENGTHS]
    hits = [((x_kept[val] @ w).argmax(1) == retained.y[val]).double().mean() for w in candidates]
    shared = candidates[int(torch.stack(hits).argmax())]
    owner = clients.client[nodes]
    answers = x_asked.new_zeros(len(nodes), classes)
    for slot in torch.unique(owner).tolist():
        asked = owner == slot
        check = val & (retained.client == slot)
        models = []
        if "shared" in parts:
            models.append((x_asked[asked] @ shared, x_kept[check] @ shared))
        if "local" in parts and len(rows[slot]):
            models.append(_local_ridge(x_kept, retained.y, rows[slot], check, x_asked[asked], classes))
        sure = local_logits[check].softmax(1).amax(1).mean().double()
        total = x_asked.new_zeros(int(asked.sum()), classes)
        for scores, scores_check in models:
            factor = matched_temperature(scores_check, sure) if check.any() else scores.new_tensor(5.0)
            total += (factor * scores).softmax(1)
        answers[asked] = total / len(models)
    return answers.to(local_logits.dtype), messages


def _local_ridge(
    x: Tensor, y: Tensor, rows: Tensor, check: Tensor, x_asked: Tensor, classes: int
) -> tuple[Tensor, Tensor]:
    """One client's own ridge in its dual form: scores of asked and of validation nodes."""
    wanted = F.one_hot(y[rows], classes).to(x.dtype) - 1 / classes
    own = x[rows]
    kernel, asked_kernel, check_kernel = own @ own.T, x_asked @ own.T, x[check] @ own.T
    best, found = -1.0, None
    for strength in _STRENGTHS:
        alpha = solve_ridge(kernel, wanted, strength)
        hits = float(((check_kernel @ alpha).argmax(1) == y[check]).double().mean()) if check.any() else 0.0
        if hits > best:
            best, found = hits, alpha
    assert found is not None  # noqa: S101 - there is at least one strength
    return asked_kernel @ found, check_kernel @ found
