"""torchmetrics classes, each a thin shell over a function."""

from page_lightning.metrics.classification import ClientClassification, grouped_auroc
from page_lightning.metrics.membership import (
    RMIA,
    DeletionDetectability,
    EfficacyLR,
    LossMIA,
    OfflineLiRA,
    RankAUROC,
    ShadowMIA,
)
from page_lightning.metrics.retrain_distance import RetrainAgreement, RetrainJS, RetrainKL, TugOfWar

__all__ = [
    "RMIA",
    "ClientClassification",
    "DeletionDetectability",
    "EfficacyLR",
    "LossMIA",
    "OfflineLiRA",
    "RankAUROC",
    "RetrainAgreement",
    "RetrainJS",
    "RetrainKL",
    "ShadowMIA",
    "TugOfWar",
    "grouped_auroc",
]
