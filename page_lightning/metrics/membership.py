"""Attacks that ask whether a model still knows the forgotten nodes.

Every ``update`` takes some nodes, forgotten and held-out ones alike (nodes no model was trained on, of the same
client), and a mask that tells them apart. No value means anything alone: read it beside that of Retrain and of doing
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from page_lightning.metrics.functional import (
    lira_auc,
    lira_z,
    mean_z,
    phi,
    probability_shift,
    rank_auc,
    relative_log_likelihood,
    rmia,
    rms_z,
    t_lr,
    tpr_at_fpr,
)
from page_lightning.metrics.node_metric import NodeMetric


class RankAUROC(NodeMetric):
    """Area under the ROC curve of any scores, by ranks: the same for any scale and number of updates."""

    def __init__(self) -> None:
        super().__init__("scores", "is_positive")

    def update(self, scores: Tensor, is_positive: Tensor) -> None:
        """Add nodes.

        Args:
            scores: ``[n]``, of any scale.
            is_positive: bool ``[n]``.
        """
        self.keep(scores=scores, is_positive=is_positive.bool())

    def compute(self) -> Tensor:
        """The area, float64 scalar; NaN without positives or without negatives."""
        scores, is_positive = self.joined("scores"), self.joined("is_positive").bool()
        return rank_auc(scores[is_positive], scores[~is_positive])


class LossMIA(RankAUROC):
    """Area of the confidence in the true class (the loss attack of Yeom et al. 2018), without any reference model."""

    def update(self, logits: Tensor, y: Tensor, forgotten: Tensor) -> None:  # type: ignore[override]
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            y: true classes, int64 ``[n]``.
            forgotten: bool ``[n]``.
        """
        super().update(phi(logits, y), forgotten)


class ShadowMIA(RankAUROC):
    """The paper's membership attack (Olatunji et al. 2021): area of the scores of an attack trained on a shadow model.

    Args:
        attack: from ``fit_shadow_attack``; posteriors ``[n, C]`` to scores ``[n, 1]``.
    """

    def __init__(self, attack: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.attack = attack

    def update(self, logits: Tensor, forgotten: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            forgotten: bool ``[n]``.
        """
        super().update(self.attack(logits.softmax(-1)).squeeze(-1), forgotten)


class DeletionDetectability(RankAUROC):
    """Can whoever holds the models before and after tell which nodes were deleted (Chen et al. 2021)?

    A risk of publishing both, not a measure of forgetting: doing nothing scores .5.
    """

    def update(self, before: Tensor, after: Tensor, forgotten: Tensor) -> None:  # type: ignore[override]
        """Add nodes.

        Args:
            before: logits of the original ``[n, C]``.
            after: logits of the unlearned model on the same graph ``[n, C]``.
            forgotten: bool ``[n]``.
        """
        super().update(probability_shift(before, after), forgotten)


class OfflineLiRA(NodeMetric):
    """Scores calibrated by retrained models: ``lira_auc``, ``lira_tpr5``, ``mean_z`` and ``rms_z``."""

    def __init__(self) -> None:
        super().__init__("phi", "phi_retrain", "forgotten")

    def update(self, logits: Tensor, retrain: Tensor, y: Tensor, forgotten: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            retrain: logits of the retrained models ``[R, n, C]``.
            y: true classes, int64 ``[n]``.
            forgotten: bool ``[n]``.
        """
        self.keep(phi=phi(logits, y), phi_retrain=phi(retrain, y).T, forgotten=forgotten.bool())

    def compute(self) -> dict[str, Tensor]:
        """Scalars: .5, about .05, 0 and about 1 for a retrained model."""
        forgotten = self.joined("forgotten")
        z = lira_z(self.joined("phi"), self.joined("phi_retrain").T)
        return {
            "lira_auc": lira_auc(z, forgotten, ~forgotten),
            "lira_tpr5": tpr_at_fpr(z[forgotten], z[~forgotten]),
            "mean_z": mean_z(z, forgotten, ~forgotten),
            "rms_z": rms_z(z, forgotten),
        }


class RMIA(NodeMetric):
    """Area of the robust membership inference attack (Zarifzadeh et al. 2024); the held-out nodes are its population.

    Args:
        a: offline correction in [0, 1].
    """

    def __init__(self, a: float = 0.3) -> None:
        super().__init__("log_ratio", "forgotten")
        self.a = a

    def update(self, logits: Tensor, retrain: Tensor, y: Tensor, forgotten: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            retrain: logits of the retrained models ``[R, n, C]``.
            y: true classes, int64 ``[n]``.
            forgotten: bool ``[n]``.
        """
        self.keep(log_ratio=relative_log_likelihood(logits, retrain, y, self.a), forgotten=forgotten.bool())

    def compute(self) -> Tensor:
        """The area, float64 scalar."""
        forgotten = self.joined("forgotten").bool()
        scores = rmia(self.joined("log_ratio"), ~forgotten)
        return rank_auc(scores[forgotten], scores[~forgotten])


class EfficacyLR(NodeMetric):
    """Mean log likelihood ratio, originals against retrained models (``t_lr``), over the nodes given.

    Give it forgotten nodes, the end points of forgotten edges, or a forgotten client's nodes: it sees all of these.
    """

    def __init__(self) -> None:
        super().__init__("phi", "phi_retrain", "phi_original")

    def update(self, logits: Tensor, retrain: Tensor, original: Tensor, y: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            retrain: logits of the retrained models ``[R, n, C]``.
            original: logits of the models trained on all data ``[O, n, C]``.
            y: true classes, int64 ``[n]``.
        """
        self.keep(phi=phi(logits, y), phi_retrain=phi(retrain, y).T, phi_original=phi(original, y).T)

    def compute(self) -> Tensor:
        """The mean, a scalar; positive where a model is like the originals."""
        ratio = t_lr(self.joined("phi"), self.joined("phi_retrain").T, self.joined("phi_original").T)
        return torch.mean(ratio)
