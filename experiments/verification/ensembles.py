"""How often fresh Retrains are flagged by one reference or another.

    python experiments/verification/ensembles.py --root DIR

Cora, Louvain, 5 clients, a regularised GCN (dropout .5, weight decay .1), 30 rounds of 3 local epochs, node request of
10 %, R = 8. The same 40 Retrains are judged by 12 references that differ in their seeds alone. Then an analysis of
variance tells whether the retrains of one reference are more alike than those of different ones (F above 1).
"""

import argparse
import os
from statistics import mean, median

import torch
from scipy.stats import f_oneway
from torch import Tensor
from torch.nn import functional as F

from page_lightning.audit import AuditInput, audit
from page_lightning.audit.queries import Queries
from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.ensemble import train_ensemble

RETRAINS, FRESH, REFERENCES, ROUNDS = 8, 40, 12, 30
RECIPE = Recipe(optimizer=OptimizerOptions("AdamW", lr=0.01, weight_decay=0.1))


def main() -> None:
    """Print the share of flagged Retrains for each reference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.environ.get("PAGE_LIGHTNING_DATA"), help="folder with the data sets")
    torch.set_num_threads(1)
    data = FederatedGraphDataModule("Cora", 5, ratios=(0.2, 0.4, 0.4), root=parser.parse_args().root)
    data.setup()
    clients = data.graphs
    request = RequestOptions(kind="node", ratio=0.1).build(clients, "Cora")
    retained = apply_request(clients, request)
    start = Federation.create(GCN(dropout=0.5), clients.num_features, clients.num_classes, 5, RECIPE)
    queries = Queries(clients, retained, request, start.server.num_hops, start.dtype)

    def answers(graphs: ClientGraphs, seeds: range) -> dict[str, Tensor]:
        members = [queries.logits(member) for member in train_ensemble(start, graphs, list(seeds), ROUNDS)]
        return {name: torch.stack([member[name] for member in members]) for name in members[0]}

    parts = {
        part: {name: getattr(nodes, part) for name, nodes in queries.sets.items()}
        for part in ("y", "forgotten", "held_out", "retained")
    }
    original, fresh = answers(clients, range(100, 100 + RETRAINS)), answers(retained, range(1000, 1000 + FRESH))
    shares: list[float] = []
    losses: dict[tuple[str, str], list[list[float]]] = {}
    for reference in range(REFERENCES):
        first = 10_000 + RETRAINS * reference
        retrain = answers(retained, range(first, first + RETRAINS))
        for name, nodes in queries.sets.items():
            for part in ("forgotten", "held_out", "retained"):
                rows = getattr(nodes, part)
                found = [float(F.cross_entropy(logits[rows].double(), nodes.y[rows])) for logits in retrain[name]]
                losses.setdefault((name, part), []).append(found)
        targets = ({name: logits[place] for name, logits in fresh.items()} for place in range(FRESH))
        p_values = [audit(AuditInput(target, retrain, original, **parts)).p_value for target in targets]
        shares.append(mean(p <= 1 / (1 + RETRAINS) + 1e-9 for p in p_values))
        print(f"reference {reference}: {shares[-1]:.3f} of {FRESH} fresh Retrains flagged", flush=True)
    print(f"mean {mean(shares):.3f}, level {1 / (1 + RETRAINS):.3f}")
    ratios = sorted(float(f_oneway(*groups).statistic) for groups in losses.values())
    print(f"F of {len(ratios)} losses: {ratios[0]:.2f} to {ratios[-1]:.2f}, median {median(ratios):.2f}")


if __name__ == "__main__":
    main()
