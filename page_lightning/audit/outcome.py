"""What the audit says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from page_lightning.audit.residual_influence import ResidualInfluence


class Verdict(str, Enum):
    """What the audit says of a model.

    Attributes:
        INDISTINGUISHABLE: not told from retrained models by this family of attacks, at level ``1 / (R + 1)``.
        RESIDUAL: told from them; influence of the forgotten data is left, or it was driven below Retrain's.
        DAMAGED: worse than every retrained and every original model on data that must be kept.
        INCONCLUSIVE: the test could not tell doing nothing from Retrain.
    """

    INDISTINGUISHABLE = "INDISTINGUISHABLE"
    RESIDUAL = "RESIDUAL"
    DAMAGED = "DAMAGED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Statistic:
    """One statistic of one retained model.

    Attributes:
        value: of the model under test.
        retrain: mean over the retrained models.
        original: mean over the originals.
        deviation: of the model under test from the retrained ones, in their standard deviations.
        outside: whether the deviation exceeds the largest of every retrained model.
    """

    value: float
    retrain: float
    original: float
    deviation: float
    outside: bool


@dataclass(frozen=True)
class AuditResult:
    """What the audit says of one retained model.

    Attributes:
        model: its name.
        verdict: see ``Verdict``.
        p_value: corrected for all statistics and models of the report.
        power: share of originals flagged on this model.
        retrains: ``R``.
        residual_influence: 0 like Retrain, 1 like doing nothing.
        statistics: by name.
    """

    model: str
    verdict: Verdict
    p_value: float
    power: float
    retrains: int
    residual_influence: ResidualInfluence
    statistics: Mapping[str, Statistic]


@dataclass(frozen=True)
class Audit:
    """What the audit says of the federation.

    Attributes:
        results: one per retained model.
        verdict: of all of them together.
        p_value: of the one test.
        power: share of originals flagged on any model.
        retrains: ``R``.
    """

    results: list[AuditResult]
    verdict: Verdict
    p_value: float
    power: float
    retrains: int
