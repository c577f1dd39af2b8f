"""PAGE beside doing nothing, fine-tuning, Retrain at equal cost and Retrain.

    python experiments/page/run.py --root DIR

Every cell (a row of ``CELLS`` and a seed of data and models) is one process (one thread) and one line of
``results.jsonl``; cells that are there are not run again. ``--table`` rewrites the tables in ``README.md`` from the
lines, ``--group`` runs part of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.jsonl"
LITERAL = FOLDER.parent.parent / "configs" / "method" / "page_literal"
CLIENT_EPOCHS = {"Cora": 2}
"""Table 4's "client-unlearn epochs" where they are not 5."""
SCHEDULES: dict[str, dict[str, Any]] = {
    "paper": {"rounds": 25, "epochs": 10, "optimizer": "Adam", "lr": 1e-3},
    "standard": {"rounds": 50, "epochs": 3, "optimizer": "AdamW", "lr": 1e-2},
}
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


@dataclass(frozen=True)
class Cell:
    """One setting.

    Args:
        group: the table it belongs to.
        source: data set.
        num_clients: clients.
        kind: of the request.
        ratio: of the request, or of the attack's edges.
        schedule: of training.
        seeds: how many.
        retrains: size of the audit's reference; 0 for none.
        backbone: of the models.
        partitioner: of the graph.
        ratios: of training, validation and test nodes.
        poison: what the data are poisoned with; the request is to forget it.
    """

    group: str
    source: str
    num_clients: int
    kind: str
    ratio: float
    schedule: str
    seeds: int = 3
    retrains: int = 0
    backbone: str = "GCN"
    partitioner: str = "Louvain"
    ratios: tuple[float, float, float] = (0.2, 0.4, 0.4)
    poison: str | None = None

    @property
    def name(self) -> str:
        """Its name on the command line."""
        parts = [self.group, self.source, self.backbone, self.partitioner, self.kind, self.poison, f"{self.ratio:g}"]
        return "-".join(part for part in parts if part)


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


def run(cell: Cell, seed: int, root: str) -> dict[str, Any]:
    """Train one federation, unlearn by every method, and judge them all."""
    import torch

    from page_lightning import FederatedTrainer
    from page_lightning.audit.outcome import Audit
    from page_lightning.callbacks import HistoryKeeper
    from page_lightning.data import FederatedGraphDataModule
    from page_lightning.data.poison import EdgeAttack, LabelShift
    from page_lightning.data.requests import RequestOptions
    from page_lightning.federation.optimizers import OptimizerOptions
    from page_lightning.methods import PAGE, FineTune, GradientAscent, InfluencedUnlearning, Retrain
    from page_lightning.modules import FederatedTraining
    from page_lightning.unlearning import AuditOptions

    torch.set_num_threads(1)
    schedule = SCHEDULES[cell.schedule]
    poison = None
    if cell.poison == "EdgeAttack":
        poison = EdgeAttack(ratio=cell.ratio)
    elif cell.poison == "LabelShift":
        poison = LabelShift(ratio=cell.ratio)
    data = FederatedGraphDataModule(
        cell.source,
        cell.num_clients,
        partitioner=_class("page_lightning.data.partitioners", cell.partitioner)(),
        ratios=cell.ratios,
        poison=poison,
        root=root,
        seed=seed,
    )
    model = FederatedTraining(
        _class("page_lightning.backbones", cell.backbone)(),
        local_epochs=schedule["epochs"],
        optimizer=OptimizerOptions(schedule["optimizer"], lr=schedule["lr"]),
        seed=seed,
    )
    request = RequestOptions(kind="poison") if poison else RequestOptions(kind=cell.kind, ratio=cell.ratio, seed=seed)
    plus = PAGE(preset="plus")
    # the same local epochs as page_plus, rounded up to whole rounds
    equal = max(1, -(-15 // schedule["epochs"]))
    compare = [
        FineTune(equal),
        Retrain(equal),
        PAGE(preset="literal", **literal(cell)),
        PAGE(preset="fixed"),
        Retrain(),
    ]
    if cell.group == "figure3":
        compare += [GradientAscent(), InfluencedUnlearning(GradientAscent())]
    with tempfile.TemporaryDirectory() as folder:
        trainer = FederatedTrainer(
            max_epochs=schedule["rounds"],
            callbacks=[HistoryKeeper(first_n=15, dirpath=f"{folder}/history")],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=folder,
        )
        data.cache = Path(folder) / "cache"
        report = trainer.unlearn(
            model, data, plus, request, compare, output_dir=f"{folder}/out", audit=AuditOptions(cell.retrains)
        )
    whole = report.row("retrain").cost

    def audited(found: Audit | None) -> dict[str, Any] | None:
        return None if found is None else {"verdict": found.verdict.value, "power": found.power}

    return {
        "cell": cell.name,
        "seed": seed,
        "rows": {
            row.name: {
                **{name: measure.value for name, measure in row.figures.metrics.items()},
                "kl_floor": row.figures.metrics["kl_forgotten"].floor if cell.retrains else None,
                "influence": None if row.figures.influence is None else row.figures.influence.value,
                "audit": audited(row.audit),
                "local_epochs": row.cost.local_epochs / whole.local_epochs,
                "cpu_seconds": row.cost.cpu_seconds,
                "phases": dict(row.cost.phase_cpu_seconds),
            }
            for row in report.rows
        },
    }


def _class(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def literal(cell: Cell) -> dict[str, Any]:
    """Table 4's options for a data set."""
    file = LITERAL / f"{cell.source.lower()}.yaml"
    options: dict[str, Any] = yaml.safe_load(file.read_text())["method"]["init_args"]
    del options["preset"]
    if cell.kind == "client":
        options["distill_epochs"] = CLIENT_EPOCHS.get(cell.source, 5)
    return options


ORDER = ("original", "fine_tune", "retrain@", "page_literal", "page_fixed", "page_plus", "gradient", "influ", "retrain")


def tables(lines: list[dict[str, Any]]) -> str:
    """All tables as Markdown."""
    parts = []
    for group in dict.fromkeys(cell.group for cell in CELLS):
        cells = [(cell, [line for line in lines if line["cell"] == cell.name]) for cell in CELLS if cell.group == group]
        cells = [(cell, found) for cell, found in cells if found]
        if cells:
            audited = any(cell.retrains for cell, _ in cells)
            parts += [f"### {group}", "", *(_audited(cells) if audited else _accuracies(cells)), ""]
    return "\n".join(parts)


def _names(found: list[dict[str, Any]]) -> list[str]:
    present = [name for name in found[0]["rows"] if name != "no_op"]
    return sorted(present, key=lambda name: next(i for i, start in enumerate(ORDER) if name.startswith(start)))


def _mean(found: list[dict[str, Any]], name: str, metric: str, digits: int = 3) -> str:
    values = [line["rows"][name].get(metric) for line in found]
    known = [value for value in values if value is not None]
    return f"{mean(known):.{digits}f}" if known else "-"


def _audited(cells: list[tuple[Cell, list[dict[str, Any]]]]) -> list[str]:
    head = ("request", "power", "model", "retained acc.", "forgotten acc.", "KL forgotten", "excess", "mean z", "rms z")
    head += ("RIR", "verdicts", "epochs", "CPU-s", "CPU-s of the stages")
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cell, found in cells:
        for name in _names(found):
            rows = [line["rows"][name] for line in found]
            shares = [excess(line, name) for line in found]
            verdicts = ["-" if row["audit"] is None else row["audit"]["verdict"] for row in rows]
            power = ", ".join(f"{line['rows']['no_op']['audit']['power']:.2f}" for line in found)
            cpu = [row["cpu_seconds"] for row in rows if row["cpu_seconds"] is not None]
            phases = {phase: mean(row["phases"].get(phase, 0) for row in rows) for phase in rows[0]["phases"]}
            shown = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in phases.items()) if "page" in name else ""
            out.append(
                f"| {cell.source} {cell.partitioner} {cell.poison or cell.kind} {cell.ratio:.0%} | {power} | {name} | "
                + " | ".join(_mean(found, name, m) for m in ("retained_accuracy", "forgotten_accuracy", "kl_forgotten"))
                + f" | {', '.join('-' if share is None else f'{share:.2f}' for share in shares)} | "
                + ", ".join(f"{row['mean_z']:.2f}" if row.get("mean_z") is not None else "-" for row in rows)
                + f" | {_mean(found, name, 'rms_z', 1)} | {_mean(found, name, 'influence', 2)} | "
                + (verdicts[0] if len(set(verdicts)) == 1 else ", ".join(verdicts))
                + f" | {_mean(found, name, 'local_epochs', 2)} | {f'{mean(cpu):.2f}' if cpu else '-'} | {shown} |"
            )
    return out


def excess(line: dict[str, Any], name: str) -> float | None:
    """Share of the original's KL above the floor that is left."""
    rows = line["rows"]
    floor, whole = rows["original"]["kl_floor"], rows["original"]["kl_forgotten"]
    return None if whole - floor <= 0 else (rows[name]["kl_forgotten"] - floor) / (whole - floor)


def _accuracies(cells: list[tuple[Cell, list[dict[str, Any]]]]) -> list[str]:
    names = list(dict.fromkeys(name for _, found in cells for name in _names(found)))
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


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.environ.get("PAGE_LIGHTNING_DATA"), help="folder with the data sets")
    parser.add_argument("--group", help="run the cells of one table only")
    parser.add_argument("--only", nargs=2, metavar=("CELL", "SEED"), help="run one cell in this process")
    parser.add_argument("--table", action="store_true", help="rewrite the tables, run nothing")
    options = parser.parse_args()
    if options.only:
        name, seed = options.only
        line = json.dumps(run(next(cell for cell in CELLS if cell.name == name), int(seed), options.root))
        with RESULTS.open("a") as file:
            file.write(line + "\n")
        return
    have = {(line["cell"], line["seed"]) for line in read()}
    for cell in () if options.table else CELLS:
        for seed in range(cell.seeds):
            if (cell.name, seed) not in have and options.group in {None, cell.group}:
                command = [sys.executable, __file__, "--root", options.root, "--only", cell.name, str(seed)]
                done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
                if done.returncode:
                    sys.stderr.write(f"{cell.name} {seed} failed\n")
    text = tables(read())
    readme = FOLDER / "README.md"
    start = "<!-- tables -->\n"
    kept = readme.read_text().split(start)[0] if readme.exists() else ""
    readme.write_text(f"{kept}{start}{text}\n")
    print(text)


def read() -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


if __name__ == "__main__":
    main()
