"""What the audit says of doing nothing, of Retrain, of ruined models and of what lies between.

    python experiments/verification/run.py --root DIR

Cora, Louvain, 5 clients, AdamW 1e-2, 3 local epochs, R = 19. Every cell (kind of request, rounds of training, seed of
data and models) is one process (one thread) and one line of ``results.jsonl``; cells that are there are not run again.
``--table`` rewrites the tables in ``README.md`` from the lines.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.jsonl"
RETRAINS, HELD_OUT = 19, 10
RATIO = {"node": 0.1, "client": 0.2}
CELLS = [(kind, rounds, seed) for rounds in (50, 3, 1) for kind in RATIO for seed in range(3)]
FRESH_SEED = 77_000_017
"""First seed of the Retrains that the audit has not seen; the ensemble's seeds lie below."""


def run(kind: str, rounds: int, seed: int, root: str) -> dict[str, object]:
    """Train one federation and its reference, and audit everything."""
    import torch

    from page_lightning.audit import audit
    from page_lightning.audit.ensemble import reference_ensemble
    from page_lightning.audit.queries import Queries
    from page_lightning.data import FederatedGraphDataModule
    from page_lightning.data.apply_request import apply_request
    from page_lightning.data.requests import RequestOptions
    from page_lightning.federation.optimizers import OptimizerOptions
    from page_lightning.methods import FineTune, GradientAscent, NoOp, Retrain, unlearn
    from page_lightning.modules import FederatedTraining
    from page_lightning.modules.ensemble import train_ensemble

    torch.set_num_threads(1)
    data = FederatedGraphDataModule("Cora", 5, ratios=(0.2, 0.4, 0.4), root=root, seed=seed)
    data.setup()
    clients = data.graphs
    model = FederatedTraining(local_epochs=3, optimizer=OptimizerOptions("AdamW", lr=0.01), seed=seed)
    untrained = model.build(clients.num_features, clients.num_classes, clients.num_clients)
    (original,) = train_ensemble(untrained, clients, [seed], rounds)
    request = RequestOptions(kind=kind, ratio=RATIO[kind], seed=seed).build(clients, "Cora")
    retained = apply_request(clients, request)
    queries = Queries(clients, retained, request, original.server.num_hops, original.dtype)

    start = time.process_time()
    ensemble = reference_ensemble(original, queries, request, RETRAINS)
    ensemble_seconds = time.process_time() - start
    candidates = {"no_op": original, "random": original.fresh()}
    for method in (NoOp(), FineTune(), GradientAscent(), *([Retrain(8)] if rounds > 8 else [])):
        candidates[method.row_name] = unlearn(method, original, clients, retained, request)
    fresh = train_ensemble(original, retained, [FRESH_SEED + place for place in range(HELD_OUT)], rounds)
    candidates |= {f"retrain {place}": member for place, member in enumerate(fresh)}

    rows = {}
    start = time.process_time()
    for name, federation in candidates.items():
        found = audit(ensemble.audit_input(queries, federation))
        rows[name] = {
            "verdict": found.verdict.value,
            "p_value": found.p_value,
            "influence": found.results[0].residual_influence.value,  # of the server's model
            "models": {result.model: result.verdict.value for result in found.results},
        }
    audit_seconds = (time.process_time() - start) / len(candidates)
    everything = ensemble.audit_input(queries, original)
    left_out = [audit(everything.left_out(place)).p_value for place in range(RETRAINS)]
    return {
        "kind": kind,
        "rounds": rounds,
        "seed": seed,
        "power": found.power,
        "rows": rows,
        "left_out_p_values": left_out,
        "ensemble_cpu_seconds": ensemble_seconds,
        "audit_cpu_seconds": audit_seconds,
    }


def tables(lines: list[dict]) -> str:
    """Verdicts of every row, then false alarms, as Markdown."""
    names = ["no_op", "random", "fine_tune", "gradient_ascent", "retrain@8"]
    out = ["| request | rounds | power | " + " | ".join(names) + " |", "|" + " --- |" * (3 + len(names))]
    heads = ("request", "rounds", "fresh Retrains", "accepted", "flagged", "left out in turn", "flagged")
    heads += ("CPU-s of the ensemble", "CPU-s of an audit")
    alarms = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for kind, rounds in dict.fromkeys((kind, rounds) for kind, rounds, _ in CELLS):
        cells = [line for line in lines if (line["kind"], line["rounds"]) == (kind, rounds)]
        if not cells:
            continue
        shown = [verdicts([cell["rows"][name] for cell in cells if name in cell["rows"]]) for name in names]
        power = ", ".join(f"{cell['power']:.2f}" for cell in cells)
        out.append(f"| {kind} {RATIO[kind]:.0%} | {rounds} | {power} | " + " | ".join(shown) + " |")
        held_out = [row for cell in cells for name, row in cell["rows"].items() if name.startswith("retrain ")]
        level, left_level = 1 / (1 + RETRAINS), 1 / RETRAINS
        flagged = sum(row["p_value"] <= level + 1e-9 for row in held_out)
        left_out = [p for cell in cells for p in cell["left_out_p_values"]]
        flagged_left = sum(p <= left_level + 1e-9 for p in left_out)
        accepted = sum(row["verdict"] == "INDISTINGUISHABLE" for row in held_out)
        alarms.append(
            f"| {kind} {RATIO[kind]:.0%} | {rounds} | {len(held_out)} | {accepted} | "
            f"{flagged} ({level * len(held_out):.1f} expected) | "
            f"{len(left_out)} | {flagged_left} ({left_level * len(left_out):.1f} expected) | "
            f"{mean(cell['ensemble_cpu_seconds'] for cell in cells):.1f} | "
            f"{mean(cell['audit_cpu_seconds'] for cell in cells):.2f} |"
        )
    return "\n".join([*out, "", *alarms])


def verdicts(rows: list[dict]) -> str:
    """Verdicts of the seeds, once where they agree, and the residual influence of each."""
    if not rows:
        return "-"
    found = [row["verdict"] for row in rows]
    influence = ", ".join("-" if row["influence"] is None else f"{row['influence']:.2f}" for row in rows)
    return f"{found[0] if len(set(found)) == 1 else ', '.join(found)} ({influence})"


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.environ.get("PAGE_LIGHTNING_DATA"), help="folder with the data sets")
    parser.add_argument("--only", nargs=3, metavar=("KIND", "ROUNDS", "SEED"), help="run one cell in this process")
    parser.add_argument("--table", action="store_true", help="rewrite the tables, run nothing")
    options = parser.parse_args()
    if options.only:
        kind, rounds, seed = options.only
        line = json.dumps(run(kind, int(rounds), int(seed), options.root))
        with RESULTS.open("a") as file:
            file.write(line + "\n")
        return
    have = {(line["kind"], line["rounds"], line["seed"]) for line in read()}
    for cell in CELLS if not options.table else ():
        if cell not in have:
            command = [sys.executable, __file__, "--root", options.root, "--only", *map(str, cell)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    text = tables(read())
    readme = FOLDER / "README.md"
    start = "<!-- tables -->\n"
    kept = readme.read_text().split(start)[0] if readme.exists() else ""
    readme.write_text(f"{kept}{start}{text}\n")
    print(text)


def read() -> list[dict]:
    """The lines so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


if __name__ == "__main__":
    main()
