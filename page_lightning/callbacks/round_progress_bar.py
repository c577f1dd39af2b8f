"""Progress over communication rounds."""

from __future__ import annotations

import time

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typing_extensions import override


class RoundProgressBar(ProgressBar):
    """One bar over all rounds with loss, accuracy and the time left.

    On a terminal it is redrawn a few times a second; elsewhere about ten lines are printed over the whole run. Figures
    are read from the device only when drawn.

    Args:
        enabled: show it.
        refresh_seconds: least time between two redraws.
    """

    def __init__(self, enabled: bool = True, refresh_seconds: float = 0.25) -> None:
        super().__init__()
        self._enabled, self.refresh_seconds = enabled, refresh_seconds
        self._console = Console(highlight=False)
        self._progress: Progress | None = None
        self._drawn = 0.0

    @override
    def disable(self) -> None:
        self._enabled = False

    @override
    def enable(self) -> None:
        """The Trainer calls this on its main process; ``enabled`` decides."""

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start, self._first, self._drawn = time.monotonic(), trainer.current_epoch, 0.0
        if self._enabled and self._console.is_terminal:
            columns = (
                TextColumn("round"), MofNCompleteColumn(), BarColumn(bar_width=None),
                TextColumn("{task.fields[figures]}"), TimeRemainingColumn(), TextColumn("left"),
            )  # fmt: skip
            self._progress = Progress(*columns, console=self._console, expand=True)
            self._task = self._progress.add_task("", total=trainer.max_epochs, completed=self._first, figures="")
            self._progress.start()

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        finished, total = trainer.current_epoch + 1, trainer.max_epochs or 0
        if not self._enabled:
            return
        if self._progress is not None:
            now = time.monotonic()
            if now - self._drawn >= self.refresh_seconds or finished == total:
                self._drawn = now
                self._progress.update(self._task, completed=finished, figures=self._figures(trainer))
        elif finished % max(1, total // 10) == 0 or finished == total:
            seconds = time.monotonic() - self._start
            left = seconds / (finished - self._first) * (total - finished)
            self._console.print(
                f"round {finished}/{total}  {self._figures(trainer)}  {seconds:.0f} s, {left:.0f} s left"
            )

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.teardown(trainer, pl_module, "fit")

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def _figures(self, trainer: Trainer) -> str:
        shown: dict[str, float] = {}
        for name, value in trainer.callback_metrics.items():
            if name == "train/loss":
                shown["loss"] = float(value)
            elif name.startswith("val/") and name.endswith("/accuracy"):
                shown.setdefault("accuracy", float(value))  # the first of model.evaluation
        return "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
