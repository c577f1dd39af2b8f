"""CPU seconds to divide a graph among clients and cut out their subgraphs; loading is not counted.

python experiments/benchmarks/partition.py --dataset Photo --clients 10 --partitioner Louvain --root DIR --json OUT
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from page_lightning.data.partition import kept_edge_mask
from page_lightning.data.partitioners.base import Partitioner
from page_lightning.data.partitioners.label_skew import LabelSkew
from page_lightning.data.partitioners.louvain import Louvain
from page_lightning.data.partitioners.louvain_plus import LouvainPlus
from page_lightning.data.partitioners.metis import Metis
from page_lightning.data.partitioners.metis_plus import MetisPlus
from page_lightning.data.partitioners.random import Random
from page_lightning.data.sources import load_source

PARTITIONERS: dict[str, type[Partitioner]] = {
    cls.__name__: cls for cls in (Louvain, LouvainPlus, Metis, MetisPlus, LabelSkew, Random)
}


def client_edges(edge_index: Tensor, assignment: Tensor) -> tuple[Tensor, ...]:
    """Induced edges of each client `[2, E_k]`, in local node numbers that follow the order of the global ones."""
    sizes = torch.bincount(assignment)
    order = assignment.argsort(stable=True)
    local = torch.empty_like(assignment)
    local[order] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    kept = edge_index[:, kept_edge_mask(edge_index, assignment)]
    owner = assignment[kept[0]]
    kept = local[kept[:, owner.argsort(stable=True)]]
    return kept.split(torch.bincount(owner, minlength=len(sizes)).tolist(), dim=1)


def main() -> None:
    """Measure once and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="csbm")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--partitioner", choices=PARTITIONERS, default="Louvain")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()

    graph = load_source(arguments.dataset, arguments.root, arguments.cache)
    start = time.process_time()
    assignment = PARTITIONERS[arguments.partitioner]().partition(graph, arguments.clients, arguments.seed)
    clients = client_edges(graph.edge_index, assignment)
    seconds = time.process_time() - start
    figures = {
        "cpu_s": seconds,
        "sizes": torch.bincount(assignment).tolist(),
        "kept_edges": sum(edges.shape[1] for edges in clients) / max(graph.num_edges, 1),
    }
    arguments.json.write_text(json.dumps(figures) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
