"""Small random client graphs, backbones by architecture, and stacks of different models."""

import numpy as np
import torch
from plain_loop import Architecture
from scipy import sparse as sp

from page_lightning.backbones import GAT, GCN, GIN, MLP, SGC, Backbone, GraphSAGE
from page_lightning.csr import csr_from_scipy
from page_lightning.federation.graphs import ClientGraphs

WORDS, LABELS, WIDTH = 23, 4, 6


def small_graphs(sizes=(17, 9, 14), *, sparse=True, seed=0) -> ClientGraphs:
    """Random graphs with isolated nodes; each client uses half of the words, and a third of its nodes train."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    client = np.repeat(np.arange(len(sizes)), sizes)
    x = (rng.random((count, WORDS)) < 0.4) * rng.random((count, WORDS))
    x *= (rng.random((len(sizes), WORDS)) < 0.5)[client]
    pairs = np.triu(rng.random((count, count)) < 0.3, 1)
    lonely = rng.random(count) < 0.15
    pairs &= ~lonely & ~lonely[:, None]
    masks = {name: torch.arange(count) % 3 == rest for rest, name in enumerate(("train", "val", "test"))}
    return ClientGraphs.from_assignment(
        csr_from_scipy(sp.csr_matrix(x)) if sparse else torch.from_numpy(x),
        torch.from_numpy(np.stack((pairs | pairs.T).nonzero())),
        torch.from_numpy(rng.integers(0, LABELS, count)),
        torch.from_numpy(client),
        masks,
        LABELS,
        len(sizes),
    )


def make_backbone(architecture: Architecture, dropout=0.0, **options) -> Backbone:
    """A built float64 backbone, the same each time."""
    classes = {"GCN": GCN, "GAT": GAT, "GraphSAGE": GraphSAGE, "GIN": GIN, "MLP": MLP}
    if architecture.startswith("SGC"):
        backbone: Backbone = SGC(WIDTH, dropout=dropout, variant=architecture[4:] or "linear", **options)
    else:
        backbone = classes[architecture](WIDTH, dropout=dropout, **options)
    torch.manual_seed(3)
    backbone.build(WORDS, LABELS)
    return backbone.double()


def different_models(backbone: Backbone, num_clients: int, seed=0) -> dict[str, torch.Tensor]:
    """A random model for each client, `[K, ...]` by parameter name."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(num_clients, *p.shape, dtype=p.dtype, generator=generator) / 2
        for name, p in backbone.named_parameters()
    }
