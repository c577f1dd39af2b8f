"""PAGE's presets: what each option is where it is not given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from page_lightning.influence import InfluenceRule


@dataclass(frozen=True)
class CounterfactualSchedule:
    """Training with and without the data, and how far to go along the difference.

    Args:
        rounds: federated rounds, each way.
        epochs: local epochs of a round.
        scale: multiple of the difference by which all models move.
    """

    rounds: int
    epochs: int
    scale: float


MEMORISED = CounterfactualSchedule(4, 1, 6.0)
"""Leavers whose labels are memorised: gradients have all but vanished, and only first steps still show them."""
LEARNED = CounterfactualSchedule(2, 3, 6.0)
"""Leavers whose labels are not."""
LEARNED_IN_PART = CounterfactualSchedule(2, 3, 2.0)
"""A part of what clients hold, not memorised."""

Preset = Literal["literal", "fixed", "plus"]
Features = Literal["marginal", "normal", "uniform"]

PRESETS: dict[str, dict[str, Any]] = {
    # The text as printed; where it is silent, what it most plainly says.
    "literal": {
        "target": "private",
        "retain": "none",
        "basis": "gram_schmidt",
        "energy": 1.0,
        "unlearn_epochs": 1,
        "features": "normal",
        "relative_epsilon": False,
        "divergence": "ce",
        "literal_graph": True,
        "positive": "soft_ce",
        "alpha": 1.0,
        "distill_epochs": 5,
        "influence": InfluenceRule("threshold", 0.0, center=False),
        "distill_lr": 1e-3,
        "rounds": 1,
        "graph": "adversarial",
        "rewind": False,
        "counterfactual_epochs": 0,
        "never_saw_epochs": 0,
    },
    # The settled readings, with the steps that do nothing repaired.
    "fixed": {
        "target": "private",
        "retain": "none",
        "basis": "principal",
        "energy": 0.95,
        "unlearn_epochs": 20,
        "features": "marginal",
        "relative_epsilon": True,
        "divergence": "ce",
        "literal_graph": False,
        "positive": "soft_ce",
        "alpha": 1.0,
        "distill_epochs": 5,
        "influence": InfluenceRule("threshold", 0.0, center=True),
        "distill_lr": 1e-3,
        "rounds": 1,
        "graph": "adversarial",
        "rewind": False,
        "counterfactual_epochs": 0,
        "never_saw_epochs": 0,
    },
    # What was measured to work: training with and without the data, and a teacher that never saw them.
    "plus": {
        "target": "private",
        "retain": "kd",
        "basis": "principal",
        "energy": 0.95,
        "unlearn_epochs": 0,
        "features": "marginal",
        "relative_epsilon": True,
        "divergence": "kl",
        "literal_graph": False,
        "positive": "soft_ce",
        "alpha": 0.1,
        "distill_epochs": 2,
        "distill_lr": 1e-2,
        "rounds": 3,
        "graph": "none",
        "influence": InfluenceRule("all"),
        "rewind": True,
        "counterfactual_epochs": 4,
        "never_saw_epochs": 7,
    },
}
