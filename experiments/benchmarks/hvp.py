"""CPU seconds of a Hessian-vector product of every client's training loss: on the stack, and client by client in PyG.

python experiments/benchmarks/hvp.py --dataset Cora --clients 10 --root DIR

Products of the two alternate in one process on one thread, and the least process time of each counts; both build the
graph of the gradient once, before. Two layers of 64, no dropout, double precision; the products are compared.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from plain_loop import PlainModel, to_plain
from rounds import load_graphs, make_backbone, plain_graphs
from torch import Tensor

from page_lightning.curvature import ClientLoss


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="Cora")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--products", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    graphs = load_graphs(options.dataset, options.clients, options.root, Path(tempfile.gettempdir()))
    torch.manual_seed(0)
    backbone = make_backbone("GCN", 0.0)
    backbone.build(graphs.num_features, graphs.num_classes)
    state = dict(backbone.double().named_parameters())
    models = {name: p.detach().expand(graphs.num_clients, *p.shape) for name, p in state.items()}
    loss = ClientLoss(backbone, models, graphs, graphs.masks["train"])
    vectors = torch.randn(loss.models().shape, dtype=torch.float64)

    plain = []
    for graph in plain_graphs(graphs, torch.float64):
        model = PlainModel("GCN", graphs.num_features, graphs.num_classes, dropout=0.0).double()
        model.load_state_dict(to_plain("GCN", state))
        logits = model(graph.x, graph.edge_index)[graph.train]
        value = torch.nn.functional.cross_entropy(logits, graph.y[graph.train], reduction="sum")
        named = dict(model.named_parameters())
        plain.append((named, torch.autograd.grad(value, list(named.values()), create_graph=True)))

    def stacked() -> Tensor:
        return loss.hessian_product(vectors)

    def one_by_one() -> list[dict[str, Tensor]]:
        parts, products = dict(zip(loss.names, loss.split(vectors), strict=True)), []
        for slot, (named, gradient) in enumerate(plain):
            own = to_plain("GCN", {name: part[slot] for name, part in parts.items()})
            found = torch.autograd.grad(gradient, list(named.values()), [own[n] for n in named], retain_graph=True)
            products.append(dict(zip(named, found, strict=True)))
        return products

    times: dict[str, list[float]] = {"stacked": [], "one by one": []}
    for _ in range(options.products):
        for name, run in (("stacked", stacked), ("one by one", one_by_one)):
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    parts = dict(zip(loss.names, loss.split(stacked()), strict=True))
    difference = 0.0
    for slot, theirs in enumerate(one_by_one()):
        ours = to_plain("GCN", {name: part[slot] for name, part in parts.items()})
        difference = max(difference, *(float((ours[name] - theirs[name]).abs().max()) for name in theirs))
    best = {name: min(values) for name, values in times.items()}
    print(
        f"{options.dataset}, {graphs.num_clients}: one by one {1e3 * best['one by one']:.1f} ms, stacked "
        f"{1e3 * best['stacked']:.1f} ms, ratio {best['one by one'] / best['stacked']:.1f}, difference {difference:.1e}"
    )


if __name__ == "__main__":
    main()
