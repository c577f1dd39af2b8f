"""Keeps the models of chosen rounds while a federation trains."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from page_lightning.callbacks.round_checkpoint import run_folder
from page_lightning.errors import ConfigurationError
from page_lightning.federation.history import History
from page_lightning.modules.federated_training import FederatedTraining


class HistoryKeeper(Callback):
    """Writes the models of some rounds into ``history/`` of the run's folder, for methods that need them.

    A round takes ``4 (K + 1)`` bytes per parameter: the server's model before it, the clients' after it.

    Args:
        first_n: keep the first so many rounds.
        every_n: keep the first round and every so many after it; 0 for none.
        dirpath: folder; by default ``history`` in the run's folder. A resumed run goes on in the folder it began.
    """

    def __init__(self, first_n: int = 0, every_n: int = 0, dirpath: str | None = None) -> None:
        for name, value in (("first_n", first_n), ("every_n", every_n)):
            if value < 0:
                message = f"history.{name} is {value}; it must not be negative"
                raise ConfigurationError(message)
        self.first_n, self.every_n, self.dirpath = first_n, every_n, dirpath

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self.first_n > 0 or self.every_n > 0

    def _is_kept(self, rounds: int) -> bool:
        return rounds <= self.first_n or (self.every_n > 0 and (rounds - 1) % self.every_n == 0)

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(pl_module, FederatedTraining) and self._is_kept(trainer.current_epoch + 1):
            self._start = {name: tensor.clone() for name, tensor in pl_module.models.server_state().items()}

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        finished = trainer.current_epoch + 1
        if isinstance(pl_module, FederatedTraining) and self._is_kept(finished):
            federation = pl_module.models
            if federation.history is None:
                folder = Path(self.dirpath) if self.dirpath else run_folder(trainer) / "history"
                federation.history = History(folder.absolute())
            federation.gather()
            if trainer.is_global_zero:
                federation.history.save(finished, federation, self._start)
