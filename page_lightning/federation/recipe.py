"""How a federation is trained: all that a retraining has to repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import Weighting
from page_lightning.federation.optimizers import OptimizerOptions


@dataclass(frozen=True)
class Recipe:
    """The options of federated averaging; see :class:`~page_lightning.modules.FederatedTraining` for each.

    Raises:
        ConfigurationError: an option makes no sense.
    """

    local_epochs: int = 3
    optimizer: OptimizerOptions = OptimizerOptions()  # noqa: RUF009 - frozen
    optimizer_state: Literal["keep", "reset"] = "keep"
    ridge: float = 0.0
    participation: float = 1.0
    weighting: Weighting = "nodes"
    server_optimizer: OptimizerOptions = OptimizerOptions("SGD", lr=1.0, weight_decay=0.0)  # noqa: RUF009
    seed: int = 0

    def __post_init__(self) -> None:
        if self.local_epochs < 1:
            message = f"model.local_epochs is {self.local_epochs}; it must be at least 1"
            raise ConfigurationError(message)
        if not 0 < self.participation <= 1:
            message = f"model.participation is {self.participation}; it must be in (0, 1]"
            raise ConfigurationError(message)
        if self.ridge < 0:
            message = f"model.ridge is {self.ridge}; it must not be negative"
            raise ConfigurationError(message)

    @property
    def keeps_optimizer_state(self) -> bool:
        """Whether a client's optimizer continues from round to round."""
        return self.optimizer_state == "keep"
