"""How much of a poison's harm is undone: 0 like doing nothing, 1 like Retrain, both on clean data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_STANDARD_ERRORS = 2.0


class Recovery(NamedTuple):
    """The recovered share of the harm; None where there is no head-room.

    Attributes:
        value: above 1 where a model is better than Retrain.
        low: lower end of a 95 % bootstrap interval over nodes and retrained models.
        high: upper end.
        head_room: accuracy of Retrain minus that of doing nothing.
        standard_error: of the head-room, over nodes and seeds.
    """

    value: float | None
    low: float | None
    high: float | None
    head_room: float
    standard_error: float


def recovered_accuracy(
    correct: Tensor, no_op: Tensor, retrain: Tensor, original: Tensor, samples: int = 1000, seed: int = 0
) -> Recovery:
    """``(acc - acc of no-op) / (acc of Retrain - acc of no-op)`` on clean test nodes.

    Dropping poisoned edges at inference alone undoes much of an edge attack (at a ratio of .1 with 90 % training nodes,
    all of it), so accuracy after unlearning means nothing without both ends. Where Retrain is not better than doing
    nothing by two standard errors there is no head-room, and no value.

    Args:
        correct: whether the model under test is right, bool ``[N]``.
        no_op: whether the original model is, bool ``[N]``.
        retrain: the same of ``R`` retrained models, bool ``[R, N]``.
        original: of ``O`` originals with other seeds, which tell the spread of doing nothing, bool ``[O, N]``.
        samples: bootstrap samples.
        seed: of the bootstrap.
    """
    nodes, retrains = len(correct), len(retrain)
    mine, start, ends = correct.double(), no_op.double(), retrain.double()
    gap = ends.mean(0) - start
    variance = gap.var() / nodes + ends.mean(1).var() / retrains + original.double().mean(1).var()
    head_room, error = float(gap.mean()), float(variance.sqrt())
    if not head_room > _STANDARD_ERRORS * error:
        return Recovery(None, None, None, head_room, error)
    generator = torch.Generator(correct.device).manual_seed(seed)

    def weights(size: int) -> Tensor:
        drawn = torch.randint(size, (samples, size), device=correct.device, generator=generator)
        counts = mine.new_zeros(samples, size)
        return counts.scatter_add_(1, drawn, torch.ones_like(counts)) / size

    node, member = weights(nodes), weights(retrains)
    before = node @ start
    ratio = (node @ mine - before) / (((node @ ends.T) * member).sum(1) - before)
    low, high = ratio.nanquantile(ratio.new_tensor([0.025, 0.975])).tolist()
    return Recovery(float((mine - start).mean()) / head_room, low, high, head_room, error)
