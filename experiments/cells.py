"""What the experiments share: a setting, one process per setting and seed, tables from the lines they leave."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

LITERAL = Path(__file__).parent.parent / "configs" / "method" / "page_literal"
CLIENT_EPOCHS = {"Cora": 2}
"""Table 4's "client-unlearn epochs" where they are not 5."""
SCHEDULES: dict[str, dict[str, Any]] = {
    "paper": {"rounds": 25, "epochs": 10, "optimizer": "Adam", "lr": 1e-3},
    "standard": {"rounds": 50, "epochs": 3, "optimizer": "AdamW", "lr": 1e-2},
}
Line = dict[str, Any]
"""What one cell leaves."""


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
        every_n: interval of the rounds whose models are kept, beside the first eight.
        poison: what the data are poisoned with (EdgeAttack, LabelShift of nodes, LeaverShift of whole clients); the
            request is to forget it.
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
    every_n: int = 0

    @property
    def name(self) -> str:
        """Its name on the command line."""
        parts = [self.group, self.source, self.backbone, self.partitioner, self.kind, self.poison, f"{self.ratio:g}"]
        return "-".join(part for part in parts if part)


def run(cell: Cell, seed: int, root: str, methods: Callable[[Cell, int], list[Any]]) -> Line:
    """Train one federation, unlearn by every method, and judge them all."""
    import numpy as np
    import torch

    from page_lightning import FederatedTrainer
    from page_lightning.audit.outcome import Audit
    from page_lightning.callbacks import HistoryKeeper
    from page_lightning.data import FederatedGraphDataModule
    from page_lightning.data.poison import EdgeAttack, LabelShift
    from page_lightning.data.requests import RequestOptions
    from page_lightning.federation.optimizers import OptimizerOptions
    from page_lightning.modules import FederatedTraining
    from page_lightning.unlearning import AuditOptions

    torch.set_num_threads(1)
    schedule = SCHEDULES[cell.schedule]
    shift = None
    if cell.poison == "LeaverShift":
        count = round(cell.ratio * cell.num_clients)
        leavers = np.random.default_rng(seed).choice(cell.num_clients, count, replace=False)
        shift = LabelShift(clients=sorted(leavers.tolist()))
    poison = {
        None: None,
        "EdgeAttack": EdgeAttack(cell.ratio, "heterophilous"),
        "LabelShift": LabelShift(ratio=cell.ratio),
        "LeaverShift": shift,
    }[cell.poison]
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
    # the same local epochs as page_plus, rounded up to whole rounds
    first, *others = methods(cell, max(1, -(-15 // schedule["epochs"])))
    with tempfile.TemporaryDirectory() as folder:
        trainer = FederatedTrainer(
            max_epochs=schedule["rounds"],
            callbacks=[HistoryKeeper(first_n=8, every_n=cell.every_n, dirpath=f"{folder}/history")],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=folder,
        )
        data.cache = Path(folder) / "cache"
        report = trainer.unlearn(
            model, data, first, request, others, output_dir=f"{folder}/out", audit=AuditOptions(cell.retrains)
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
    return getattr(importlib.import_module(module), name)


def literal(cell: Cell) -> dict[str, Any]:
    """Table 4's options for a data set."""
    file = LITERAL / f"{cell.source.lower()}.yaml"
    options: dict[str, Any] = yaml.safe_load(file.read_text())["method"]["init_args"]
    del options["preset"]
    if cell.kind == "client":
        options["distill_epochs"] = CLIENT_EPOCHS.get(cell.source, 5)
    return options


def ordered(found: list[Line]) -> list[str]:
    """The rows of a table: the original, controls, methods, Retrain."""
    ahead = ("original", "fine_tune", "retrain@")
    present = [name for name in found[0]["rows"] if name not in {"no_op", "retrain"}]
    place = {name: next((i for i, start in enumerate(ahead) if name.startswith(start)), 9) for name in present}
    return [*sorted(present, key=lambda name: (place[name], name)), "retrain"]


def _mean(found: list[dict[str, Any]], name: str, metric: str, digits: int = 3) -> str:
    values = [line["rows"][name].get(metric) for line in found]
    known = [value for value in values if value is not None]
    return f"{mean(known):.{digits}f}" if known else "-"


def audited(cells: list[tuple[Cell, list[dict[str, Any]]]]) -> list[str]:
    """A table with distances to Retrain, verdicts and cost."""
    head = ("request", "power", "model", "retained acc.", "forgotten acc.", "KL forgotten", "excess", "mean z", "rms z")
    head += ("RIR", "verdicts", "epochs", "CPU-s", "CPU-s of the stages")
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cell, found in cells:
        for name in ordered(found):
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


def main(
    script: str,
    description: str | None,
    cells: Sequence[Cell],
    methods: Callable[[Cell, int], list[Any]],
    tables: Callable[[list[Line]], str],
) -> None:
    """Run what is missing, then print the tables.

    Args:
        script: file of the experiment; its folder holds ``results.jsonl`` and ``README.md``.
        description: its help.
        cells: what there is to run.
        methods: given a cell and the rounds that cost what page_plus does, the methods to compare.
        tables: Markdown from all lines.
    """
    folder = Path(script).parent
    results = folder / "results.jsonl"
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", default=os.environ.get("PAGE_LIGHTNING_DATA"), help="folder with the data sets")
    parser.add_argument("--group", help="run the cells of one table only")
    parser.add_argument("--only", nargs=2, metavar=("CELL", "SEED"), help="run one cell in this process")
    parser.add_argument("--table", action="store_true", help="rewrite the tables, run nothing")
    options = parser.parse_args()
    if options.only:
        name, seed = options.only
        line = json.dumps(run(next(cell for cell in cells if cell.name == name), int(seed), options.root, methods))
        with results.open("a") as file:
            file.write(line + "\n")
        return
    have = {(line["cell"], line["seed"]) for line in read(results)}
    for cell in () if options.table else cells:
        for seed in range(cell.seeds):
            if (cell.name, seed) not in have and options.group in {None, cell.group}:
                command = [sys.executable, script, "--root", options.root, "--only", cell.name, str(seed)]
                done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
                if done.returncode:
                    sys.stderr.write(f"{cell.name} {seed} failed\n")
    text = tables(read(results))
    readme = folder / "README.md"
    start = "<!-- tables -->\n"
    kept = readme.read_text().split(start)[0] if readme.exists() else ""
    readme.write_text(f"{kept}{start}{text}\n")
    print(text)


def read(results: Path) -> list[Line]:
    """The lines so far."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
