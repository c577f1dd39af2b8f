"""A cheap model that never saw the forgotten data: ridge regression on propagated features, in closed form.

It says *which* forgotten nodes should now be wrong, and how sure of them a model that never saw them would be. Clients
share one Gram matrix; each also has a ridge of its own. Their scores are added with the weights at which, on nodes that
no model was trained on, the sum is closest to the original model: what it says of unseen nodes is what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.randomness import stream_key
from page_lightning.metrics.functional import phi

_UNCALIBRATED = 2.5
"""Weight of each ridge on a client without unlabelled nodes."""


def propagated_features(
    graphs: ClientGraphs, num_hops: int, width: int, seed: int, nodes: Tensor | None = None
) -> Tensor:
    """``S^K X`` with ``S = D^-1/2 (A + I) D^-1/2``, at most ``width`` columns, in double precision ``[n, w]``.

    Wider features are multiplied by one random matrix that all clients know from the seed (Johnson-Lindenstrauss).

    Args:
        graphs: the clients.
        num_hops: ``K``.
        width: most columns.
        seed: of the random matrix.
        nodes: of which nodes, bool ``[N]``; by default all.
    """
    dtype = torch.float32
    flow = graphs.flow(num_hops, dtype) if nodes is None else graphs.flow_at(nodes, num_hops, dtype)
    if graphs.num_features > width:
        draws = torch.Generator(graphs.device).manual_seed(stream_key(seed, 11) >> 1)
        mixing = (
            torch.randn(graphs.num_features, width, generator=draws, device=graphs.device, dtype=dtype) * width**-0.5
        )
        return flow.smooth("symmetric", mixing).double()
    return flow.smooth("symmetric", torch.eye(graphs.num_features, device=graphs.device, dtype=dtype)).double()


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


@dataclass(frozen=True, eq=False)
class NeverSaw:
    """What models that never saw the forgotten data say.

    Args:
        asked: log-probabilities of the forgotten nodes ``[n, C]``.
        kept: of all nodes of the retained graphs ``[N, C]``.
        messages: what each client sent.
    """

    asked: Tensor
    kept: Tensor
    messages: list[GramMessage]


def calibrated_weights(scores: Tensor, wanted: Tensor) -> Tensor:
    """Weights ``a`` with the least cross-entropy of ``softmax(sum_j a_j scores_j)`` to given probabilities, ``[J]``.

    Newton's method on a convex function of ``J`` numbers, with its step halved while it does not descend.

    Args:
        scores: ``[J, n, C]``.
        wanted: ``[n, C]``.
    """
    weights = scores.new_full((len(scores),), _UNCALIBRATED)
    if not len(wanted):
        return weights

    def loss(at: Tensor) -> Tensor:
        return -(wanted * torch.einsum("j,jnc->nc", at, scores).log_softmax(1)).sum(1).mean()

    value = loss(weights)
    for _ in range(30):
        p = torch.einsum("j,jnc->nc", weights, scores).softmax(1)
        mean = torch.einsum("nc,jnc->jn", p, scores)
        gradient = (mean - torch.einsum("nc,jnc->jn", wanted, scores)).mean(1)
        curvature = torch.einsum("nc,inc,jnc->ij", p, scores, scores) - mean @ mean.T
        curvature = curvature / len(wanted) + 1e-9 * torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
        step = torch.linalg.solve(curvature, gradient)
        while (lower := loss(weights - step)) > value and step.abs().max() > 1e-9:
            step = step / 2
        if value - lower < 1e-9:
            break
        weights, value = weights - step, lower
    return weights


@torch.no_grad()
def never_saw(
    retained: ClientGraphs,
    clients: ClientGraphs,
    nodes: Tensor,
    original: Tensor,
    num_hops: int = 2,
    width: int = 512,
    strength: float = 1.0,
    seed: int = 0,
) -> NeverSaw:
    """Ridges fitted on what is retained, calibrated to the original model's answers on unlabelled nodes.

    Args:
        retained: graphs without the request's data; all that is fitted.
        clients: graphs in which the nodes are queried, with the same slots.
        nodes: of ``clients``, bool.
        original: logits of the original local models on the nodes of ``retained`` ``[N, C]``.
        num_hops: of the propagation.
        width: most columns of the propagated features.
        strength: of the ridges, in units of the mean squared feature.
        seed: of the random matrix that narrows features.
    """
    classes = retained.num_classes
    x_kept = propagated_features(retained, num_hops, width, seed)
    x_asked = propagated_features(clients, num_hops, width, seed, nodes)
    train, owner = retained.masks["train"], clients.client[nodes]
    members = [(retained.client == slot) for slot in range(retained.num_clients)]
    rows = [(train & own).nonzero().squeeze(1) for own in members]
    messages = [gram_message(x_kept[own], retained.y[own], classes) for own in rows]
    shared = solve_ridge(
        torch.stack([message.gram for message in messages]).sum(0),
        torch.stack([message.moment for message in messages]).sum(0),
        strength,
    )
    wanted = original.double().softmax(1)
    kept, asked = torch.empty_like(wanted), wanted.new_empty(len(owner), classes)
    for slot, own in enumerate(members):
        here = owner == slot
        models = [shared, _local_ridge(x_kept[rows[slot]], retained.y[rows[slot]], classes, strength)]
        on_kept = torch.stack([x_kept[own] @ model for model in models])
        on_asked = torch.stack([x_asked[here] @ model for model in models])
        unlabelled = ~train[own]
        weights = calibrated_weights(on_kept[:, unlabelled], wanted[own][unlabelled])
        kept[own] = torch.einsum("j,jnc->nc", weights, on_kept).log_softmax(1)
        asked[here] = torch.einsum("j,jnc->nc", weights, on_asked).log_softmax(1)
    return NeverSaw(asked, kept, messages)


def _local_ridge(x: Tensor, y: Tensor, classes: int, strength: float) -> Tensor:
    """One client's own ridge ``[w, C]``, in the smaller of its two forms."""
    wanted = F.one_hot(y, classes).to(x.dtype) - 1 / classes
    if len(x) > x.shape[1]:
        return solve_ridge(x.T @ x, x.T @ wanted, strength)
    return x.T @ solve_ridge(x @ x.T, wanted, strength) if len(x) else x.new_zeros(x.shape[1], classes)


# -- how far to go -----------------------------------------------------------------------------------------------------

SCALES = tuple(0.25 * place for place in range(49))
"""Multiples of the counterfactual difference that clients try."""
MIXING = 0.5
"""Share of the way from the original to the extrapolated answers that counts as the extrapolation's error."""


@dataclass(frozen=True)
class Blend:
    """How a teacher is put together.

    Args:
        scale: multiple of the counterfactual difference.
        weight: of the never-saw models beside the extrapolated original.
    """

    scale: float
    weight: float


def blend_statistics(
    before: Tensor, difference: Tensor, y: Tensor, asked: Tensor, original: Tensor, kept: Tensor, labels: Tensor
) -> Tensor:
    """What one client sends so that the server can choose the :class:`Blend`; sums over nodes, never a node.

    Args:
        before: logits of the forgotten nodes under the original model ``[n, C]``.
        difference: how training without them differs from training with them there ``[n, C]``.
        y: their classes ``[n]``.
        asked: log-probabilities under the never-saw models ``[n, C]``.
        original: logits of validation nodes under the original model ``[m, C]``.
        kept: log-probabilities there under the never-saw models ``[m, C]``.
        labels: classes of the validation nodes ``[m]``.

    Returns:
        ``[10 + 2 * len(SCALES)]``.
    """
    ours, theirs = phi(original, labels).clamp(-30, 30), phi(kept, labels).clamp(-30, 30)
    gap = (original.softmax(1) * (original.log_softmax(1) - kept)).sum()
    forgotten = phi(asked, y).clamp(-30, 30)
    sums = [
        gap.new_tensor(float(len(labels))), theirs.sum(), ours.sum(), theirs.square().sum(), (theirs * ours).sum(), gap,
        gap.new_tensor(float(len(y))), forgotten.sum(), phi(before, y).clamp(-30, 30).sum(), difference.abs().sum(),
    ]  # fmt: skip
    curve, moved = [], []
    start = before.log_softmax(1)
    for scale in SCALES:
        logits = before + scale * difference
        curve.append(phi(logits, y).clamp(-30, 30).sum())
        moved.append((logits.softmax(1) * (logits.log_softmax(1) - start)).sum())
    return torch.stack([*sums, *curve, *moved])


def choose_blend(statistics: Sequence[Tensor]) -> Blend:
    """The scale at which forgotten nodes look unseen, and how much to trust the never-saw models.

    Unseen means: their mean ``phi`` is what the original model's is on validation nodes, corrected for how hard the
    forgotten ones are (a regression on the never-saw models' ``phi``). The never-saw models weigh by their distance to
    the original model on validation nodes against the distance that the extrapolation moved.

    Args:
        statistics: of every client that forgets, from :func:`blend_statistics`.
    """
    total = torch.stack(list(statistics)).sum(0)
    count, theirs, ours, squares, products, gap, asked, hard, _, _ = total[:10].tolist()
    curve, moved = total[10:].view(2, len(SCALES))
    if not count or not asked:
        return Blend(1.0, 0.5)
    spread = squares / count - (theirs / count) ** 2
    slope = (products / count - theirs * ours / count**2) / spread if spread > 1e-12 else 0.0
    wanted = ours / count + slope * (hard / asked - theirs / count)
    reached = (curve / asked <= wanted).nonzero()
    place = int(reached[0]) if len(reached) else len(SCALES) - 1
    scale = SCALES[place]
    if place > 0 and len(reached):  # between two scales that were tried
        high, low = float(curve[place - 1]) / asked, float(curve[place]) / asked
        scale -= (SCALES[1] - SCALES[0]) * (wanted - low) / max(high - low, 1e-12)
    far = MIXING * float(moved[place]) / asked
    return Blend(scale, far / max(far + gap / count, 1e-12))


def teacher_answers(before: Tensor, difference: Tensor, asked: Tensor, blend: Blend) -> Tensor:
    """The teacher's probabilities of the forgotten nodes, a geometric mean of both ways to have never seen them."""
    extrapolated = (before + blend.scale * difference).log_softmax(1)
    return ((1 - blend.weight) * extrapolated + blend.weight * asked).softmax(1)
