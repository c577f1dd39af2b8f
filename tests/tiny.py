"""What the suites share: a tiny generated graph, and a reader of the tables that runs write."""

import csv
import json
from pathlib import Path

from page_lightning.federation.history import History
from page_lightning.modules.ensemble import train_ensemble

TINY = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}
"""`data.source_args` of a graph with 150 nodes, 120 words and 3 classes."""

TINY_JOB = (
    *("--data.source", "csbm", "--data.source_args", json.dumps(TINY), "--data.num_clients", "3"),
    *("--trainer.max_epochs", "2", "--trainer.accelerator", "cpu"),
)
"""Options that make any job tiny."""


def history_of(start, graphs, rounds, folder):
    """Every round of a training, kept."""
    history, before = History(folder), start
    for number in range(1, rounds + 1):
        after = train_ensemble(start, graphs, [0], number)[0]
        history.save(number, after, before.server_state())
        before = after
    return history


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
