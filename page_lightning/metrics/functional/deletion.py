"""What publishing a model before and after a deletion gives away."""

from __future__ import annotations

from torch import Tensor

from page_lightning.metrics.functional.ranking import rank_auc


def probability_shift(before: Tensor, after: Tensor) -> Tensor:
    """Euclidean distance of the predicted probabilities before and after, ``[.., N]``.

    Args:
        before: logits ``[.., N, C]``.
        after: logits ``[.., N, C]`` on the same graph.
    """
    return (before.softmax(-1) - after.softmax(-1)).square().sum(-1).sqrt()


def deletion_detectability(before: Tensor, after: Tensor, forgotten: Tensor, held_out: Tensor) -> Tensor:
    """Can whoever holds both models tell which nodes were deleted? Area under the ROC curve, float64 ``[..]``.

    The two-model attack of Chen et al. 2021 with the L2 score. Graph unlearning codes report it as a membership attack
    and read .5 as forgotten. It is not one: doing nothing scores exactly .5 and Retrain scores more.

    Args:
        before: logits ``[.., N, C]``.
        after: logits ``[.., N, C]`` on the same graph.
        forgotten: a set of nodes.
        held_out: nodes no model was trained on.
    """
    shift = probability_shift(before, after)
    return rank_auc(shift[..., forgotten], shift[..., held_out])
