"""CPU seconds of the whole audit, and of its ensemble as one stack, in turn, and as plain PyG loops.

python experiments/benchmarks/audit.py --dataset Cora --clients 10 --retrains 8 --root DIR --json OUT

The audit: R + 1 retrained and R original federations, a shadow federation, and every figure of the report for no-op, by
schedule ``standard`` (50 rounds of 3 local epochs, AdamW at 0.01); training the audited federation is not counted. The
three ways of training R members take turns over a few rounds on one thread; the least process time of each counts.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rounds import start_plain

from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.unlearning import environment, judge

ROUNDS, RECIPE = 50, Recipe()  # the recipe's defaults are the schedule's


def cpu_seconds(work: Callable[[], object]) -> float:
    """Process time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def time_audit(data: FederatedGraphDataModule, retrains: int) -> float:
    """CPU seconds to judge doing nothing about a request for 10 % of the training nodes."""
    graphs = data.graphs
    start = Federation.create(GCN(), graphs.num_features, graphs.num_classes, graphs.num_clients, RECIPE)
    (original,) = train_ensemble(start, graphs, [RECIPE.seed], ROUNDS)
    request = RequestOptions("node", ratio=0.1).build(graphs, data.source.name)
    retained = apply_request(graphs, request)
    return cpu_seconds(lambda: judge([], original, graphs, retained, request, data, retrains, environment(0)))


def time_training(graphs: ClientGraphs, members: int, rounds: int, repeats: int) -> dict[str, float]:
    """Least CPU seconds of one round of all members, for each way of training them."""
    graphs = graphs.select(graphs.count("train").nonzero().flatten().tolist())
    start = Federation.create(GCN(), graphs.num_features, graphs.num_classes, graphs.num_clients, RECIPE)
    seeds = list(range(members))
    plain = start_plain("GCN", graphs, 0.5, torch.float32, start.server_state())
    ways: dict[str, Callable[[], object]] = {
        "stack": lambda: train_ensemble(start, graphs, seeds, rounds),
        "in_turn": lambda: [train_ensemble(start, graphs, [seed], rounds) for seed in seeds],
        "plain": lambda: plain.run_round(RECIPE.local_epochs),
    }
    least = dict.fromkeys(ways, math.inf)
    for _ in range(repeats):
        for name, work in ways.items():
            least[name] = min(least[name], cpu_seconds(work))
    return {"stack": least["stack"] / rounds, "in_turn": least["in_turn"] / rounds, "plain": least["plain"] * members}


def main() -> None:
    """Measure once and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="Cora")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--retrains", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of each way")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        root = None if arguments.root is None else str(arguments.root)
        data = FederatedGraphDataModule(arguments.dataset, arguments.clients, root=root, cache=cache)
        data.setup()
        seconds = time_audit(data, arguments.retrains)
    per_round = time_training(data.graphs, arguments.retrains, arguments.rounds, arguments.repeats)
    figures = {
        "dataset": arguments.dataset,
        "clients": arguments.clients,
        "retrains": arguments.retrains,
        "audit_cpu_s": seconds,
        **{f"{name}_round_cpu_s": value for name, value in per_round.items()},
        "stack_over_in_turn": per_round["in_turn"] / per_round["stack"],
        "stack_over_plain": per_round["plain"] / per_round["stack"],
        "torch": torch.__version__,
    }
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
