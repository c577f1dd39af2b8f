"""The whole federation in one file, at a stated cadence."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from page_lightning.errors import ConfigurationError
from page_lightning.modules.federated_training import FederatedTraining


class RoundCheckpoint(Checkpoint):
    """Writes ``last.ckpt`` every few rounds and at the end; files are replaced whole, never half-written.

    A run that is killed continues from the last saved round with ``--ckpt_path .../last.ckpt``. While a method runs,
    the file is ``unlearning.ckpt``, for ``--resume_ckpt_path``.

    Args:
        every_n_rounds: rounds between two savings.
        dirpath: folder; by default ``checkpoints`` in the run's folder.
        keep: also keep ``round=<n>.ckpt`` of every saved round.
    """

    def __init__(self, every_n_rounds: int = 10, dirpath: str | None = None, keep: bool = False) -> None:
        if every_n_rounds < 1:
            message = f"checkpoint.every_n_rounds is {every_n_rounds}; it must be at least 1"
            raise ConfigurationError(message)
        self.every_n_rounds, self.dirpath, self.keep = every_n_rounds, dirpath, keep

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        finished = trainer.current_epoch + 1
        if finished % self.every_n_rounds == 0 or finished == trainer.max_epochs:
            folder = self.folder(trainer)
            kept, last = (
                ("round", "last") if isinstance(pl_module, FederatedTraining) else ("unlearning-round", "unlearning")
            )
            if self.keep:
                trainer.save_checkpoint(folder / f"{kept}={finished}.ckpt", weights_only=False)
            trainer.save_checkpoint(folder / f"{last}.ckpt", weights_only=False)

    def folder(self, trainer: Trainer) -> Path:
        """Where checkpoints go; the same on every process."""
        return Path(self.dirpath) if self.dirpath else run_folder(trainer) / "checkpoints"


def run_folder(trainer: Trainer) -> Path:
    """The first logger's folder, or the Trainer's root folder."""
    folder: str | None = trainer.strategy.broadcast(trainer.log_dir)
    return Path(folder or trainer.default_root_dir)
