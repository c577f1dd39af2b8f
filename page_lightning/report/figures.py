"""Three figures of a report: accuracies beside the Retrain band, the attack's ROC curve, each client's accuracy."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from page_lightning.report.report import Report

_GREY, _BLUE, _ORANGE = "#9aa0a6", "#3b6fb6", "#d9822b"
_CYCLE = ["#3b6fb6", "#d9822b", "#4a9c6d", "#a3548f", "#8c6d46", "#6b7fa3", "#b0483f", "#3f9aa8"]


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Draw what the report can show.

    Args:
        report: the report.
        folder: where PNG files go.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {"accuracy": accuracy_figure(report), "roc": roc_figure(report), "clients": client_figure(report)}
    paths = []
    with mpl.rc_context({"svg.hashsalt": "page-lightning"}):
        for name, figure in drawn.items():
            if figure is not None:
                path = folder / f"{name}.png"
                figure.savefig(path, dpi=150, metadata={"Software": None})
                paths.append(path)
    return paths


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def accuracy_figure(report: Report) -> Figure:
    """Accuracy on retained test nodes and on forgotten nodes, with the band of retrained models."""
    figure = _figure(7.2, 0.9 + 0.42 * len(report.rows))
    panels = figure.subplots(1, 2, sharey=True)
    names = [row.name for row in report.rows]
    for axis, (title, metric) in zip(
        panels, (("retained test nodes", "retained_accuracy"), ("forgotten nodes", "forgotten_accuracy")), strict=True
    ):
        values = [_value(row.figures.metrics.get(metric)) for row in report.rows]
        colours = [_GREY if name in {"original", "no_op", "retrain"} else _BLUE for name in names]
        axis.barh(names, values, color=colours)
        if metric in report.retrain_band:
            low, high = report.retrain_band[metric]
            axis.axvspan(low, high, color=_ORANGE, alpha=0.35, lw=0, label="retrained models")
        lowest = min((v for v in [*values, *report.retrain_band.get(metric, ())] if not np.isnan(v)), default=0.0)
        axis.set(title=title, xlabel="accuracy", xlim=(max(0, lowest - 0.15), 1))
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    if report.retrain_band:
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower right")
    return figure


def roc_figure(report: Report) -> Figure | None:
    """True against false positive rate of the calibrated attack for every row; none without an ensemble."""
    rows = [row for row in report.rows if row.figures.lira_scores is not None]
    if not rows:
        return None
    figure = _figure(5.2, 4.6)
    axis = figure.subplots()
    for row, colour in zip(rows, _CYCLE * len(rows), strict=False):
        inside, outside = (part.cpu().numpy() for part in row.figures.lira_scores or ())
        thresholds = np.sort(np.concatenate([inside, outside]))[::-1]
        false = np.searchsorted(np.sort(-outside), -thresholds, side="right") / len(outside)
        true = np.searchsorted(np.sort(-inside), -thresholds, side="right") / len(inside)
        style = ":" if row.name == "no_op" else "-"
        axis.plot([0, *false, 1], [0, *true, 1], style, color=colour, lw=1.6, label=row.name, drawstyle="steps-post")
    axis.plot([0, 1], [0, 1], color=_GREY, lw=0.8)
    axis.set(
        xlabel="held-out nodes taken for forgotten ones",
        ylabel="forgotten nodes recognised",
        title="Calibrated membership attack (LiRA)",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    return figure


def client_figure(report: Report) -> Figure:
    """Test accuracy of each client that stays, a group of bars per client; no-op's bars are the original's."""
    rows = [row for row in report.rows if row.name != "no_op"]
    accuracy = np.array([row.figures.client_accuracy for row in rows], dtype=float)
    clients = np.flatnonzero(~np.isnan(accuracy).all(0))
    figure = _figure(max(6.0, 0.35 * len(clients) * len(rows) / 2 + 2), 3.4)
    axis = figure.subplots()
    width = 0.8 / len(rows)
    for place, (row, colour) in enumerate(zip(rows, _CYCLE * len(rows), strict=False)):
        centre = np.arange(len(clients)) + (place - (len(rows) - 1) / 2) * width
        axis.bar(centre, accuracy[place, clients], width, label=row.name, color=colour)
    axis.set(xlabel="client", ylabel="test accuracy", ylim=(0, 1.02))
    axis.set_xticks(range(len(clients)), [str(client) for client in clients])
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside right center")
    return figure


def _value(measure: object) -> float:
    value = getattr(measure, "value", None)
    return float("nan") if value is None else float(value)
