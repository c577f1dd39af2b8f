"""How far a model lies from Retrain: in its predictions, in accuracy and loss, in its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

_CHUNK = 4096  # nodes whose probabilities are held in double precision at once


def kl(reference: Tensor, logits: Tensor) -> Tensor:
    """``KL(reference || model)`` of each node in nats, ``[.., N]``.

    Args:
        reference: logits of Retrain, ``[.., N, C]``.
        logits: logits of the model, ``[.., N, C]``.
    """
    log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
    divergence: Tensor = (log_p.exp() * (log_p - log_q)).sum(-1)
    return divergence.clamp(min=0)


def jensen_shannon(reference: Tensor, logits: Tensor) -> Tensor:
    """Jensen-Shannon divergence of each node in nats, ``[.., N]``; symmetric, at most ``log 2``.

    Args:
        reference: logits of Retrain, ``[.., N, C]``.
        logits: logits of the model, ``[.., N, C]``.
    """
    log_p, log_q = reference.log_softmax(-1), logits.log_softmax(-1)
    log_mean = torch.logaddexp(log_p, log_q) - math.log(2)
    both: Tensor = log_p.exp() * (log_p - log_mean) + log_q.exp() * (log_q - log_mean)
    return (both.sum(-1) / 2).clamp(min=0)


def agreement(reference: Tensor, logits: Tensor) -> Tensor:
    """1 where two models predict the same class, else 0, ``[.., N]``.

    Args:
        reference: logits of Retrain, ``[.., N, C]``.
        logits: logits of the model, ``[.., N, C]``.
    """
    return (reference.argmax(-1) == logits.argmax(-1)).to(logits.dtype)


def ensemble_floor(measure: Callable[[Tensor, Tensor], Tensor], ensemble: Tensor) -> Tensor:
    """What ``measure`` gives between two different retrained models, mean over all ordered pairs, ``[N]``.

    The floor of a distance (the ceiling of ``agreement``): no unlearned model can be asked to be closer. NaN for one
    model.

    Args:
        measure: ``kl``, ``jensen_shannon`` or ``agreement``.
        ensemble: logits ``[R, N, C]``.
    """
    size = len(ensemble)
    others = ~torch.eye(size, dtype=torch.bool, device=ensemble.device)
    # one row of pairs at a time: [R, R, N, C] would not fit
    total = sum((measure(one, ensemble)[others[i]].sum(0) for i, one in enumerate(ensemble)), ensemble.new_zeros(()))
    return total / (size * (size - 1) or torch.nan)


def pairwise_kl(logits: Tensor) -> Tensor:
    """``KL(j || m)`` between all pairs of models, mean over the nodes, float64 ``[M, M]``, entry ``[j, m]``.

    One matrix product: the negative entropy of ``j`` minus its cross term with ``m``.

    Args:
        logits: ``[M, N, C]``.
    """
    models, nodes, _ = logits.shape
    cross = logits.new_zeros(models, models, dtype=torch.float64)
    for start in range(0, nodes, _CHUNK):
        log_p = logits[:, start : start + _CHUNK].double().log_softmax(-1).flatten(1)
        cross += log_p.exp() @ log_p.T
    return ((cross.diagonal()[:, None] - cross) / (nodes or torch.nan)).clamp(min=0)


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """Share of nodes predicted right, float64 ``[..]``; NaN without nodes.

    Args:
        logits: ``[.., N, C]``.
        y: true classes, int64 ``[N]``.
    """
    return (logits.argmax(-1) == y).double().mean(-1)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Loss of each node in nats, ``[.., N]``.

    Args:
        logits: ``[.., N, C]``.
        y: true classes, int64 ``[N]``.
    """
    index = y.expand(logits.shape[:-1]).unsqueeze(-1)
    return -logits.log_softmax(-1).gather(-1, index).squeeze(-1)


def loss_gap(logits: Tensor, retrain: Tensor, y: Tensor) -> Tensor:
    """Mean loss of a model minus that of Retrain in nats, ``[..]``; negative where the model remembers.

    Args:
        logits: ``[.., N, C]``.
        retrain: ``[R, N, C]``.
        y: true classes, int64 ``[N]``.
    """
    return cross_entropy(logits, y).mean(-1) - cross_entropy(retrain, y).mean()


def accuracy_gap(logits: Tensor, retrain: Tensor, y: Tensor) -> Tensor:
    """Accuracy of a model minus that of Retrain, float64 ``[..]``.

    Args:
        logits: ``[.., N, C]``.
        retrain: ``[R, N, C]``.
        y: true classes, int64 ``[N]``.
    """
    return accuracy(logits, y) - accuracy(retrain, y).mean()


def tug_of_war(logits: Tensor, retrain: Tensor, y: Tensor, sets: Sequence[Tensor]) -> Tensor:
    """``prod over sets of (1 - |accuracy - accuracy of Retrain|)``, float64 ``[..]``, best 1 (Zhao et al. 2024, RUM).

    Args:
        logits: ``[.., N, C]``.
        retrain: one retrained model ``[N, C]``, or ``[R, N, C]`` for the mean accuracy of an ensemble.
        y: true classes, int64 ``[N]``.
        sets: the forgotten, the retained and the test nodes.
    """
    gaps = [accuracy_gap(logits[..., s, :], retrain[..., s, :], y[s]).abs() for s in sets]
    return (1 - torch.stack(gaps)).prod(0)


def parameter_distance(
    model: Mapping[str, Tensor], retrain: Mapping[str, Tensor], original: Mapping[str, Tensor]
) -> Tensor:
    """``|model - retrain| / |original - retrain|``, float64 scalar: 0 like Retrain, 1 like the original.

    Meaningful only where Retrain began with the original's initial weights; even then seed noise dominates.

    Args:
        model: parameters by name.
        retrain: parameters by name.
        original: parameters by name.
    """
    return _norm(model, retrain) / _norm(original, retrain)


def relative_parameter_change(model: Mapping[str, Tensor], original: Mapping[str, Tensor]) -> Tensor:
    """``|model - original| / |original|``, float64 scalar: 0 where a method did nothing.

    Args:
        model: parameters by name.
        original: parameters by name.
    """
    return _norm(model, original) / _norm(original, None)


def _norm(first: Mapping[str, Tensor], second: Mapping[str, Tensor] | None) -> Tensor:
    """Norm of the difference over all floating-point entries of ``first``, or of ``first`` itself."""
    values = {name: value for name, value in first.items() if value.is_floating_point()}
    parts = [value.double() - (0 if second is None else second[name].double()) for name, value in values.items()]
    total: Tensor = torch.stack([part.square().sum() for part in parts]).sum().sqrt()
    return total
