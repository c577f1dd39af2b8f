"""Accuracy, CPU seconds and memory of federated training against OpenFGL's published settings.

    python experiments/accuracy/run.py --root DIR

Every cell is one process (one thread) and one line of ``results.jsonl``; cells that are there are not run again.
``--table`` rewrites the table in ``README.md`` from the lines.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, pstdev

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.jsonl"
PEER = {"cora_k10": "79.99 ± 0.70", "cora_k20": "77.34 ± 0.98", "photo_k10": "91.04", "cs_k10": "88.00 (15 rounds)"}
CELLS = [("cora_k10", 5), ("cora_k20", 5), ("photo_k10", 5), ("cs_k10", 1)]


def resident_bytes() -> int:
    """Memory this process holds (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(experiment: str, seed: int, root: str) -> dict[str, object]:
    """One fit of an experiment under OpenFGL's schedule."""
    import torch

    from page_lightning.cli import PageCLI, find_configs

    torch.set_num_threads(1)
    before = resident_bytes()
    start = time.process_time()
    arguments = find_configs(
        [
            "fit",
            f"--config=configs/experiment/{experiment}.yaml",
            "--config=configs/schedule/openfgl.yaml",
            f"--data.root={root}",
            f"--data.seed={seed}",
            f"--model.seed={seed}",
            "--progress_bar.enabled=false",
            "--run_files.quiet=true",
            "--checkpoint.every_n_rounds=100",
        ]
    )
    cli = PageCLI(arguments)
    cpu = time.process_time() - start
    logged = {name: float(value) for name, value in cli.trainer.callback_metrics.items()}
    last = cli.trainer.test(cli.model, datamodule=cli.datamodule, verbose=False)[0]
    return {
        "experiment": experiment,
        "seed": seed,
        "test_at_best_validation": cli.model.best["test_accuracy"],
        "best_round": cli.model.best["round"] + 1,
        "test_last_local": last["test/local_on_local/accuracy"],
        "test_last_global": last["test/global_on_local/accuracy"],
        "train_loss": logged["train/loss"],
        "cpu_seconds": cpu,
        "mib_above_imports": (resident_bytes() - before) / 2**20,
    }


def table(lines: list[dict]) -> str:
    """The Markdown table of all cells."""
    names = ("experiment", "seeds", "test at best validation", "OpenFGL", "last round, local", "last round, global")
    head = "| " + " | ".join([*names, "CPU-s", "MiB"]) + " |"
    rows = [head, "|" + " --- |" * 8]
    for experiment, _ in CELLS:
        cells = [line for line in lines if line["experiment"] == experiment]
        if not cells:
            continue

        def percent(name: str, cells: list[dict] = cells) -> str:
            values = [100 * cell[name] for cell in cells]
            return f"{mean(values):.2f} ± {pstdev(values):.2f}"

        rows.append(
            f"| {experiment} | {len(cells)} | {percent('test_at_best_validation')} | {PEER[experiment]} | "
            f"{percent('test_last_local')} | {percent('test_last_global')} | "
            f"{mean(cell['cpu_seconds'] for cell in cells):.1f} | {mean(c['mib_above_imports'] for c in cells):.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.environ.get("PAGE_LIGHTNING_DATA"), help="folder with the data sets")
    parser.add_argument("--only", nargs=2, metavar=("EXPERIMENT", "SEED"), help="run one cell in this process")
    options = parser.parse_args()
    if options.only:
        with RESULTS.open("a") as file:
            file.write(json.dumps(run(options.only[0], int(options.only[1]), options.root)) + "\n")
        return
    done = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    have = {(line["experiment"], line["seed"]) for line in done}
    for experiment, seeds in CELLS:
        for seed in range(seeds):
            if (experiment, seed) not in have:
                command = [sys.executable, __file__, "--root", options.root, "--only", experiment, str(seed)]
                subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    text = table(lines)
    readme = FOLDER / "README.md"
    start = "<!-- table -->\n"
    kept = readme.read_text().split(start)[0] if readme.exists() else ""
    readme.write_text(f"{kept}{start}{text}\n")
    print(text)


if __name__ == "__main__":
    main()
