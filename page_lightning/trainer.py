"""The Trainer with the settings that a federation needs."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

import page_lightning.strategies  # noqa: F401 - registers "client_parallel"
from page_lightning.errors import ConfigurationError

TRAINER_DEFAULTS: dict[str, Any] = {
    "num_sanity_val_steps": 0,  # a sanity check would score the server before round 0
    "use_distributed_sampler": False,  # it would repeat clients
    "inference_mode": False,  # attacks and influence functions take gradients in test steps
    "enable_model_summary": False,
    "log_every_n_steps": 1,
    "devices": 1,
}


class FederatedTrainer(Trainer):
    """A Trainer whose epochs are communication rounds: ``max_epochs`` is the number of rounds.

    Args:
        kwargs: of ``lightning.pytorch.Trainer``.

    Raises:
        ConfigurationError: ``max_epochs`` is negative.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        for name, value in TRAINER_DEFAULTS.items():
            kwargs.setdefault(name, value)
        rounds = kwargs.get("max_epochs")
        if rounds is not None and rounds < 0:
            message = f"trainer.max_epochs is {rounds}; it is the number of rounds, at least 0"
            raise ConfigurationError(message)
        super().__init__(**kwargs)
