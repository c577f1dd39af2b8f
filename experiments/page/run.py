"""PAGE beside doing nothing, fine-tuning, Retrain at equal cost and Retrain.

    python experiments/page/run.py --root DIR

Every cell (a row of ``CELLS`` and a seed of data and models) is one process (one thread) and one line of
``results.jsonl``; cells that are there are not run again. ``--table`` rewrites the tables in ``README.md`` from the
lines, ``--group`` runs part of them.
"""

import sys
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from cells import Cell, Line, audited, literal, main, ordered

PAPER = {
    ("Cora", "client"): (83.98, 83.91),
    ("PubMed", "client"): (83.90, 83.57),
    ("CS", "client"): (82.18, 78.66),
    ("Photo", "client"): (78.41, 69.73),
    ("Cora", "node"): (78.65, 81.29),
    ("PubMed", "node"): (83.91, 84.39),
    ("CS", "node"): (87.74, 88.66),
    ("Photo", "node"): (88.62, 88.84),
}
"""Accuracies of Retrain and PAGE in the paper's Table 1."""


CLIENTS = {"Cora": 5, "PubMed": 5, "Photo": 10, "CS": 10}
REQUESTS = {"node": 0.1, "client": 0.2}
CELLS = [
    *(
        Cell("forgetting", source, clients, kind, ratio, "standard", retrains=19 if source == "Cora" else 8)
        for source, clients in CLIENTS.items()
        for kind, ratio in REQUESTS.items()
    ),
    Cell("poison", "Photo", 10, "poison", 0.1, "standard", retrains=8, poison="LabelShift"),
    *(
        Cell("table1", source, clients, kind, ratio, "paper")
        for source, clients in CLIENTS.items()
        for kind, ratio in REQUESTS.items()
    ),
    *(
        Cell("table2", "Computers", 10, kind, 0.1, "paper", 1, 2, "GAT", partitioner)
        for partitioner in ("Metis", "MetisPlus")
        for kind in ("edge", "feature")
    ),
    Cell("figure2", "Photo", 10, "poison", 0.3, "paper", 1, 0, "GAT", poison="EdgeAttack"),
    Cell("figure3", "Cora", 5, "node", 0.1, "paper", 1, 0, "SGC"),
    Cell("figure4", "Chameleon", 10, "client", 0.5, "paper", 1, 0, "GraphSAGE", ratios=(0.48, 0.32, 0.2)),
]


def methods(cell: Cell, equal: int) -> list[Any]:
    """What is compared; the first is carried out by the Trainer."""
    from page_lightning.methods import PAGE, FineTune, GradientAscent, InfluencedUnlearning, Retrain

    found = [PAGE("plus"), FineTune(equal), Retrain(equal), PAGE("literal", **literal(cell)), PAGE("fixed"), Retrain()]
    return found + ([GradientAscent(), InfluencedUnlearning(GradientAscent())] if cell.group == "figure3" else [])


def tables(lines: list[Line]) -> str:
    """All tables as Markdown."""
    parts = []
    for group in dict.fromkeys(cell.group for cell in CELLS):
        cells = [(cell, [line for line in lines if line["cell"] == cell.name]) for cell in CELLS if cell.group == group]
        cells = [(cell, found) for cell, found in cells if found]
        if cells:
            judged = any(cell.retrains for cell, _ in cells)
            parts += [f"### {group}", "", *(audited(cells) if judged else _accuracies(cells)), ""]
    return "\n".join(parts)


def _accuracies(cells: list[tuple[Cell, list[Line]]]) -> list[str]:
    names = list(dict.fromkeys(name for _, found in cells for name in ordered(found)))
    head = ["setting", *names, "paper: Retrain", "paper: PAGE"]
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cell, found in cells:
        shown = []
        for name in names:
            values = [100 * line["rows"][name]["retained_accuracy"] for line in found if name in line["rows"]]
            shown.append(f"{mean(values):.2f}" if values else "-")
        known = PAPER.get((cell.source, cell.kind), ("-", "-")) if cell.group == "table1" else ("-", "-")
        setting = f"{cell.source} {cell.backbone} {cell.partitioner} {cell.poison or cell.kind} {cell.ratio:.0%}"
        out.append(f"| {setting} | " + " | ".join([*shown, *map(str, known)]) + " |")
    return out


if __name__ == "__main__":
    main(__file__, __doc__, CELLS, methods, tables)
