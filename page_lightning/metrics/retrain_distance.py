"""Distances to Retrain, each with what retrained models give among themselves."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torchmetrics import Metric

from page_lightning.metrics.functional import agreement, ensemble_floor, jensen_shannon, kl
from page_lightning.metrics.node_metric import NodeMetric


class RetrainDistance(NodeMetric):
    """Mean over nodes and retrained models of a measure of two models' predictions."""

    def __init__(self) -> None:
        super().__init__("distance", "floor")

    @staticmethod
    @abstractmethod
    def measure(reference: Tensor, logits: Tensor) -> Tensor:
        """The measure of each node, ``[.., N]``, from logits ``[.., N, C]``."""

    def update(self, logits: Tensor, retrain: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            retrain: logits of the retrained models ``[R, n, C]``.
        """
        distance = self.measure(retrain, logits).mean(0)
        self.keep(distance=distance, floor=ensemble_floor(self.measure, retrain))

    def compute(self) -> dict[str, Tensor]:
        """Scalars ``value`` and ``floor``; the floor is NaN for one retrained model."""
        return {"value": self.joined("distance").mean(), "floor": self.joined("floor").mean()}


class RetrainKL(RetrainDistance):
    """``KL(Retrain || model)`` in nats."""

    measure = staticmethod(kl)


class RetrainJS(RetrainDistance):
    """Jensen-Shannon divergence in nats."""

    measure = staticmethod(jensen_shannon)


class RetrainAgreement(RetrainDistance):
    """Share of nodes on which a model and a retrained one predict the same class."""

    measure = staticmethod(agreement)


class TugOfWar(Metric):
    """``prod over sets of (1 - |accuracy - accuracy of Retrain|)`` (Zhao et al. 2024, RUM); 1 is best.

    Args:
        num_sets: how many sets; 3 for forgotten, retained and test nodes.
    """

    full_state_update = False
    hits: Tensor
    retrain_hits: Tensor
    count: Tensor

    def __init__(self, num_sets: int = 3) -> None:
        super().__init__()
        for name in ("hits", "retrain_hits", "count"):
            self.add_state(name, torch.zeros(num_sets, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, retrain: Tensor, y: Tensor, group: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[n, C]``.
            retrain: logits of the retrained models ``[R, n, C]``.
            y: true classes, int64 ``[n]``.
            group: the set of each node, int64 ``[n]``.
        """
        self.hits.index_add_(0, group, (logits.argmax(-1) == y).double())
        self.retrain_hits.index_add_(0, group, (retrain.argmax(-1) == y).double().mean(0))
        self.count.index_add_(0, group, torch.ones_like(group, dtype=torch.float64))

    def compute(self) -> Tensor:
        """The product over the sets that have nodes, float64 scalar."""
        gap = ((self.hits - self.retrain_hits) / self.count).abs()
        return (1 - gap[self.count > 0]).prod()
