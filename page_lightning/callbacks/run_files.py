"""Tables beside a run's log: the partition, what crossed the wire, and every client's scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from page_lightning.callbacks.round_checkpoint import run_folder
from page_lightning.data.datamodule import FederatedGraphDataModule
from page_lightning.modules.federated_training import FederatedTraining


class RunFiles(Callback):
    """Prints the partition and the scores; writes ``partition.json``, ``ledger.csv`` and ``clients.csv``.

    The files lie in the run's folder and hold every client's figures.

    Args:
        quiet: write without printing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(highlight=False)

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]
        folder = run_folder(trainer)
        if isinstance(data, FederatedGraphDataModule) and trainer.is_global_zero:
            summary = data.summary()
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "partition.json").write_text(json.dumps(summary.to_dict(), indent=2) + "\n")
            if not self.quiet:
                self._console.print(summary.table())

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)
        if not isinstance(pl_module, FederatedTraining) or not trainer.is_global_zero:
            return
        pl_module.channel.write_csv(folder / "ledger.csv")
        if self.quiet:
            return
        best = pl_module.best
        if best:
            self._console.print(
                f"best validation at round {best['round'] + 1:.0f}: validation {best['val_accuracy']:.4f}, "
                f"test {best['test_accuracy']:.4f} ({pl_module.evaluation[0]})"
            )
        up, down = (pl_module.channel.total(way) / 2**20 for way in ("up", "down"))
        self._console.print(f"sent {up:.1f} MiB up, {down:.1f} MiB down; files in {folder}")

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._print_scores(trainer)

    @override
    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(pl_module, FederatedTraining):
            scores = pl_module.client_scores()
            folder = run_folder(trainer)
            if trainer.is_global_zero:
                _write_scores(folder / "clients.csv", scores)
                self._print_scores(trainer)

    def _print_scores(self, trainer: Trainer) -> None:
        """One row for each model and data, one column for each metric."""
        if self.quiet or not trainer.is_global_zero:
            return
        scores = {tuple(name.split("/")): float(value) for name, value in trainer.callback_metrics.items()}
        scores = {name: value for name, value in scores.items() if len(name) == 3}
        metrics = list(dict.fromkeys(metric for _, _, metric in scores))
        table = Table("", *(metric.replace("_", " ") for metric in metrics))
        for split, mode in dict.fromkeys((split, mode) for split, mode, _ in scores):
            figures = (scores.get((split, mode, metric)) for metric in metrics)
            cells = ("-" if figure is None else f"{figure:.4f}" for figure in figures)
            table.add_row(f"{split}: {mode.replace('_', ' ')}", *cells)
        self._console.print(table)


def _write_scores(path: Path, scores: dict[str, dict[str, list[float]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model and data", "client", "metric", "value"])
        for mode, figures in scores.items():
            for metric, values in figures.items():
                writer.writerows([mode, client, metric, value] for client, value in enumerate(values))
