"""GIF, D2DGN, FedEraser and FUSED beside doing nothing, fine-tuning, Retrain at equal cost, PAGE and Retrain.

    python experiments/baselines/run.py --root DIR

Every cell (a row of ``CELLS`` and a seed of data and models) is one process (one thread) and one line of
``results.jsonl``; cells that are there are not run again. ``--table`` rewrites the tables in ``README.md`` from the
lines, ``--group`` runs part of them.
"""

import sys
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from cells import Cell, Line, audited, literal, main

PAPER = {
    ("Cora", "node"): {"gif": 81.02, "d2dgn": 75.83, "page": 81.29, "retrain": 78.65},
    ("Photo", "node"): {"gif": 80.44, "d2dgn": 79.69, "page": 88.84, "retrain": 88.62},
    ("Cora", "client"): {"fed_eraser": 83.85, "fused": 49.43, "page": 83.91, "retrain": 83.98},
    ("Photo", "client"): {"fed_eraser": 54.66, "fused": 67.60, "page": 69.73, "retrain": 78.41},
}
"""Accuracies in PAGE's Table 1."""

CELLS = [
    Cell(group, source, clients, kind, ratio, "standard", retrains=8, poison=poison, every_n=2)
    for source, clients in (("Cora", 5), ("Photo", 10))
    for group, kind, ratio, poison in (
        ("node", "node", 0.1, None),
        ("client", "client", 0.2, None),
        ("shifted", "poison", 0.2, "LeaverShift"),
    )
]


def methods(cell: Cell, equal: int) -> list[Any]:
    """What is compared; the first is carried out by the Trainer."""
    from page_lightning.methods import D2DGN, FUSED, GIF, PAGE, FedEraser, FineTune, InfluencedUnlearning, Retrain

    shared = [FineTune(equal), Retrain(equal), PAGE("literal", **literal(cell)), PAGE("fixed"), PAGE("plus"), Retrain()]
    if cell.kind == "node":
        return [GIF(), D2DGN(), InfluencedUnlearning(GIF()), InfluencedUnlearning(D2DGN()), *shared]
    return [FedEraser(), FUSED(), *shared]


def tables(lines: list[Line]) -> str:
    """All tables as Markdown."""
    parts = []
    for group, title in (
        ("node", "Node requests"),
        ("client", "Client requests"),
        ("shifted", "Clients with shifted labels"),
    ):
        cells = [(cell, [line for line in lines if line["cell"] == cell.name]) for cell in CELLS if cell.group == group]
        cells = [(cell, found) for cell, found in cells if found]
        if cells:
            parts += [f"### {title}", "", *audited(cells), "", *_beside_the_paper(cells), ""]
    return "\n".join(parts)


def _beside_the_paper(cells: list[tuple[Cell, list[Line]]]) -> list[str]:
    out = []
    for cell, found in cells:
        for name, theirs in PAPER.get((cell.source, cell.kind), {}).items():
            row = "page_plus" if name == "page" else name
            ours = 100 * mean(line["rows"][row]["retained_accuracy"] for line in found)
            out.append(f"| {cell.source} {cell.kind} | {row} | {ours:.2f} | {theirs:.2f} |")
    return ["| request | model | retained accuracy | the paper's |", "| --- | --- | --- | --- |", *out] if out else []


if __name__ == "__main__":
    main(__file__, __doc__, CELLS, methods, tables)
