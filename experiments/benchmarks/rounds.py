"""CPU seconds of a round of federated averaging, page-lightning against a plain loop over PyG models.

python experiments/benchmarks/rounds.py --dataset Cora --clients 10 --backbone GCN --root DIR --json OUT

A round is broadcast, local epochs and aggregation; no evaluation. Rounds of the two alternate in one process on one
thread, and the least process time of each counts. The models are compared after some rounds from the same start with
dropout off. Memory is the peak of page-lightning's job, data and partition included, above that after the imports.
"""

import argparse
import json
import math
import resource
import time
from pathlib import Path

import torch
from plain_loop import ARCHITECTURES, Architecture, PlainFederation, PlainGraph, PlainModel, from_plain, to_plain
from torch import Tensor

from page_lightning.backbones import GAT, GCN, GIN, MLP, SGC, Backbone, GraphSAGE
from page_lightning.data.partitioners.louvain import Louvain
from page_lightning.data.partitioners.metis import Metis
from page_lightning.data.sources import load_source
from page_lightning.data.splits import DEFAULT_RATIOS, FALLBACK_RATIOS, split_nodes
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.stage import run_stage

LOUVAIN_UP_TO = 20  # clients; beyond, Louvain's communities are fewer than clients and METIS divides


def make_backbone(architecture: Architecture, dropout: float) -> Backbone:
    """The page-lightning model of an architecture: two layers, 64 wide."""
    if architecture.startswith("SGC"):
        return SGC(dropout=dropout, variant="linear" if architecture == "SGC" else "openfgl")
    classes: dict[str, type[Backbone]] = {"GCN": GCN, "GAT": GAT, "GraphSAGE": GraphSAGE, "GIN": GIN, "MLP": MLP}
    return classes[architecture](dropout=dropout)


def load_graphs(dataset: str, clients: int, root: Path | None, cache: Path) -> ClientGraphs:
    """The clients of a data set that have training nodes."""
    graph = load_source(dataset, root, cache)
    partitioner = Louvain() if clients <= LOUVAIN_UP_TO else Metis()
    assignment = partitioner.partition(graph, clients, 0)
    masks = split_nodes(graph.y, assignment, DEFAULT_RATIOS.get(graph.name, FALLBACK_RATIOS), 0)
    graphs = ClientGraphs.from_assignment(
        graph.x, graph.edge_index, graph.y, assignment, masks, graph.num_classes, clients
    )
    return graphs.select(graphs.count("train").nonzero().flatten().tolist())


class OurFederation:
    """Rounds as `FederatedTraining` runs them, without a Trainer."""

    def __init__(self, backbone: Backbone, graphs: ClientGraphs) -> None:
        self.federation = Federation(backbone, graphs.num_clients)
        self.stage = LocalTraining(backbone, graphs)
        dtype = next(backbone.parameters()).dtype
        self.weights = client_weights(graphs, "nodes", range(graphs.num_clients)).to(dtype)
        self.round = 0

    def run_round(self, local_epochs: int) -> None:
        """Broadcast, train every client, average."""
        self.stage.begin(self.round, self.federation.server_state(), keep_optimizer_state=True)
        run_stage(self.stage, local_epochs)
        self.federation.hold(self.stage.stack, range(len(self.weights)))
        average = self.stage.stack.weighted_sum(self.weights)
        with torch.no_grad():
            for name, parameter in self.federation.server.named_parameters():
                parameter.copy_(average[name])
        self.round += 1


def start_ours(architecture: Architecture, graphs: ClientGraphs, dropout: float, dtype: torch.dtype) -> OurFederation:
    """A federation of page-lightning from a fixed seed."""
    torch.manual_seed(0)
    backbone = make_backbone(architecture, dropout)
    backbone.build(graphs.num_features, graphs.num_classes)
    return OurFederation(backbone.to(dtype), graphs)


def start_plain(
    architecture: Architecture, graphs: ClientGraphs, dropout: float, dtype: torch.dtype, state: dict[str, Tensor]
) -> PlainFederation:
    """A plain federation from a backbone's parameters."""
    model = PlainModel(architecture, graphs.num_features, graphs.num_classes, dropout=dropout).to(dtype)
    model.load_state_dict(to_plain(architecture, state))
    return PlainFederation(model, plain_graphs(graphs, dtype))


def plain_graphs(graphs: ClientGraphs, dtype: torch.dtype) -> list[PlainGraph]:
    """Each client's graph, features dense."""
    x, (y, train) = graphs.x.to_dense().to(dtype), (graphs.y, graphs.masks["train"])
    owner = graphs.client[graphs.edge_index[0]]
    result, start = [], 0
    for slot, size in enumerate(graphs.sizes):
        rows = slice(start, start + size)
        edges = graphs.edge_index[:, owner == slot] - start
        result.append(PlainGraph(x[rows].clone(), edges, y[rows], train[rows]))
        start += size
    return result


def largest_difference(
    architecture: Architecture, graphs: ClientGraphs, dtype: torch.dtype, rounds: int, epochs: int
) -> float:
    """Largest difference of the servers' parameters after some rounds without dropout."""
    ours = start_ours(architecture, graphs, 0.0, dtype)
    plain = start_plain(architecture, graphs, 0.0, dtype, ours.federation.server_state())
    for _ in range(rounds):
        ours.run_round(epochs)
        plain.run_round(epochs)
    reference = from_plain(architecture, plain.server.state_dict())
    return max((t - reference[name]).abs().max().item() for name, t in ours.federation.server_state().items())


def time_rounds(ours: OurFederation, plain: PlainFederation, rounds: int, epochs: int) -> tuple[float, float]:
    """Least process time of a round of each, in turns."""
    plain.run_round(epochs)
    least = [math.inf, math.inf]
    for _ in range(rounds):
        for index, federation in enumerate((ours, plain)):
            start = time.process_time()
            federation.run_round(epochs)
            least[index] = min(least[index], time.process_time() - start)
    return least[0], least[1]


def peak_kib() -> int:
    """Largest resident set so far (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Measure once and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="Cora")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--backbone", choices=ARCHITECTURES, default="GCN")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of each, at least 7")
    parser.add_argument("--local-epochs", type=int, default=3)
    parser.add_argument("--compared-rounds", type=int, default=3, help="rounds before the models are compared")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("data"))
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    epochs, architecture = arguments.local_epochs, arguments.backbone

    before = peak_kib()
    graphs = load_graphs(arguments.dataset, arguments.clients, arguments.root, arguments.cache)
    ours = start_ours(architecture, graphs, 0.5, torch.float32)
    for _ in range(2):  # caches fill
        ours.run_round(epochs)
    memory = (peak_kib() - before) / 1024

    plain = start_plain(architecture, graphs, 0.5, torch.float32, ours.federation.server_state())
    our_time, plain_time = time_rounds(ours, plain, max(arguments.rounds, 7), epochs)
    del ours, plain

    rounds = arguments.compared_rounds
    figures = {
        "dataset": arguments.dataset,
        "clients": arguments.clients,
        "backbone": architecture,
        "plain_cpu_s": plain_time,
        "ours_cpu_s": our_time,
        "ratio": plain_time / our_time,
        "max_abs_diff": largest_difference(architecture, graphs, torch.float32, rounds, epochs),
        "max_abs_diff_float64": largest_difference(architecture, graphs, torch.float64, rounds, epochs),
        "rss_above_import_mib": memory,
        "torch": torch.__version__,
    }
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
