"""Attack curves by ranks: exact, and the same for any increasing transformation of the scores."""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 1 << 23  # scores resampled at once, 64 MB


def rank_auc(positive: Tensor, negative: Tensor) -> Tensor:
    """Area under the ROC curve, ``P(positive > negative) + P(equal) / 2`` (Mann and Whitney), float64 ``[..]``.

    Exact, ties averaged. Not torchmetrics' ``BinaryAUROC``: that one passes scores outside [0, 1] through a sigmoid,
    where large ones become equal. NaN where a set is empty.

    Args:
        positive: scores of members, ``[.., P]``.
        negative: scores of non-members, ``[.., Q]``.
    """
    dtype = torch.promote_types(positive.dtype, negative.dtype)
    positive = positive.to(dtype).contiguous()
    ordered = negative.to(dtype).sort(-1).values.contiguous()
    below = torch.searchsorted(ordered, positive)
    not_above = torch.searchsorted(ordered, positive, right=True)
    return (below + not_above).double().mean(-1) / (2 * negative.shape[-1] or torch.nan)


def tpr_at_fpr(positive: Tensor, negative: Tensor, fpr: float = 0.05) -> Tensor:
    """Largest true positive rate of a threshold whose false positive rate is at most ``fpr``, float64 ``[..]``.

    No interpolation and no randomised ties, hence never above what an attacker can reach. NaN where a set is empty.

    Args:
        positive: scores of members, ``[.., P]``.
        negative: scores of non-members, ``[.., Q]``.
        fpr: in [0, 1).
    """
    count = negative.shape[-1]
    if count == 0:
        return positive.new_full(positive.shape[:-1], torch.nan, dtype=torch.float64)
    allowed = int(fpr * count + 1e-9)
    threshold = negative.topk(allowed + 1, -1).values[..., -1:]
    return (positive > threshold).double().mean(-1)


def auc_interval(
    positive: Tensor,
    negative: Tensor,
    strata: tuple[Tensor, Tensor] | None = None,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of ``rank_auc`` by a stratified bootstrap over nodes.

    Members and non-members are resampled apart, and within each of them every stratum keeps its size.

    Args:
        positive: scores of members, ``[P]``.
        negative: scores of non-members, ``[Q]``.
        strata: int64 stratum (class, degree bin) of each member ``[P]`` and non-member ``[Q]``.
        samples: bootstrap samples.
        seed: of the resampling.
        level: coverage of the interval.

    Returns:
        Lower and upper end; NaN where a set is empty.
    """
    if not positive.numel() or not negative.numel():
        return torch.nan, torch.nan
    generator = torch.Generator(positive.device).manual_seed(seed)
    groups = (None, None) if strata is None else strata
    areas = []
    step = max(1, _CHUNK // (positive.numel() + negative.numel()))
    for done in range(0, samples, step):
        size = min(step, samples - done)
        drawn = [
            scores[_resample(scores, group, size, generator)]
            for scores, group in zip((positive, negative), groups, strict=True)
        ]
        areas.append(rank_auc(*drawn))
    tail = (1 - level) / 2
    low, high = torch.cat(areas).quantile(positive.new_tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _resample(scores: Tensor, strata: Tensor | None, samples: int, generator: torch.Generator) -> Tensor:
    """Positions drawn with replacement inside each stratum, ``[samples, N]``."""
    if strata is None:
        strata = torch.zeros_like(scores, dtype=torch.int64)
    order = strata.argsort()
    size = strata.bincount()
    size = size[size > 0]
    start = (size.cumsum(0) - size).repeat_interleave(size)
    draw = torch.rand(samples, len(scores), dtype=torch.float64, device=scores.device, generator=generator)
    return order[start + (draw * size.repeat_interleave(size)).long()]


def hanley_mcneil_se(auc: Tensor | float, positives: int, negatives: int) -> Tensor:
    """Standard error of an area under the ROC curve, float64 (Hanley and McNeil 1982).

    ``SE^2 = [A(1-A) + (P-1)(A/(2-A) - A^2) + (Q-1)(2A^2/(1+A) - A^2)] / (PQ)``.

    Args:
        auc: ``A``, of any shape.
        positives: ``P``, how many members.
        negatives: ``Q``, how many non-members.
    """
    a = torch.as_tensor(auc, dtype=torch.float64)
    above_two = a / (2 - a) - a * a
    below_two = 2 * a * a / (1 + a) - a * a
    variance = a * (1 - a) + (positives - 1) * above_two + (negatives - 1) * below_two
    return (variance / (positives * negatives)).clamp(min=0).sqrt()
