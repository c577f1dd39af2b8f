"""Federated averaging as a plain loop over PyG models: what page-lightning must equal, and what it is timed against.

One model, one optimizer and one graph a client, stock PyG layers on `edge_index`, state dicts sent around: what a PyG
user writes first. Nothing here knows page-lightning but `to_plain` and `from_plain`, which rename parameters.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, SGConv

Architecture = Literal["GCN", "GAT", "GraphSAGE", "SGC", "SGC-openfgl", "GIN", "MLP"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)


@dataclass(frozen=True)
class PlainGraph:
    """One client's graph.

    Attributes:
        x: Features `[N, F]`.
        edge_index: Both directions of every edge `[2, E]`.
        y: Class of each node `[N]`.
        train: Training nodes, bool `[N]`.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor


class PlainModel(nn.Module):
    """Stock PyG layers with ReLU and dropout between them.

    Args:
        architecture: Which layers; "SGC" is a single `SGConv` that propagates `num_layers` times.
        num_features: Number of features `F`.
        num_classes: Number of classes `C`.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers.
        dropout: Probability of zeroing a hidden unit in training.
        heads: Attention heads of GAT's hidden layers.
        layer_norm: Whether hidden rows are normalised before the ReLU.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_features: int,
        num_classes: int,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        heads: int = 1,
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.architecture, self.dropout = architecture, dropout
        if architecture == "SGC":
            self.layers = nn.ModuleList([SGConv(num_features, num_classes, K=num_layers)])
        else:
            inner = [hidden_channels] * (num_layers - 1)
            widths = list(zip([num_features, *inner], [*inner, num_classes], strict=True))
            self.layers = nn.ModuleList(
                _layer(architecture, i, o, hidden_channels, 1 if index == len(inner) else heads)
                for index, (i, o) in enumerate(widths)
            )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_channels) for _ in self.layers[1:]) if layer_norm else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits `[N, C]`."""
        for index, layer in enumerate(self.layers):
            x = layer(x) if self.architecture == "MLP" else layer(x, edge_index)
            if index < len(self.layers) - 1:
                x = x if self.norms is None else self.norms[index](x)
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x


def _layer(architecture: Architecture, i: int, o: int, hidden: int, heads: int) -> nn.Module:
    if architecture == "GIN":
        return GINConv(nn.Sequential(nn.Linear(i, hidden), nn.ReLU(), nn.Linear(hidden, o)))
    if architecture == "GAT":
        return GATConv(i, o // heads, heads)
    kinds: dict[str, Callable[[int, int], nn.Module]] = {
        "GCN": GCNConv,
        "GraphSAGE": SAGEConv,
        "SGC-openfgl": SGConv,
        "MLP": nn.Linear,
    }
    return kinds[architecture](i, o)


class PlainFederation:
    """FedAvg: every client trains a copy of the server's model, the server takes the weighted mean.

    Args:
        server: The initial model.
        graphs: One graph a client, each with a training node.
        weights: Share of each client in the mean; by default its share of all nodes.
        make_optimizer: From a client's parameters to its optimizer, which is kept from round to round.
        ridge: Adds `ridge / 2 * ||theta||^2` to each client's loss.
    """

    def __init__(
        self,
        server: PlainModel,
        graphs: Sequence[PlainGraph],
        weights: Sequence[float] | None = None,
        make_optimizer: Callable[[list[Tensor]], Optimizer] = lambda p: AdamW(p, lr=1e-2, weight_decay=5e-4),
        ridge: float = 0.0,
    ) -> None:
        self.server, self.graphs, self.ridge = server, graphs, ridge
        total = sum(len(graph.y) for graph in graphs)
        self.weights = [len(graph.y) / total for graph in graphs] if weights is None else weights
        self.models = [copy.deepcopy(server) for _ in graphs]
        self.optimizers = [make_optimizer(list(model.parameters())) for model in self.models]

    def run_round(self, local_epochs: int) -> None:
        """Broadcast, train every client, average."""
        for model, optimizer, graph in zip(self.models, self.optimizers, self.graphs, strict=True):
            model.load_state_dict(copy.deepcopy(self.server.state_dict()))
            self._train(model, optimizer, graph, local_epochs)
        states = [model.state_dict() for model in self.models]
        mean = {
            name: sum(weight * state[name] for weight, state in zip(self.weights, states, strict=True))
            for name in states[0]
        }
        self.server.load_state_dict(mean)

    def _train(self, model: PlainModel, optimizer: Optimizer, graph: PlainGraph, epochs: int) -> None:
        model.train()
        for _ in range(epochs):
            optimizer.zero_grad()
            logits = model(graph.x, graph.edge_index)
            loss = F.cross_entropy(logits[graph.train], graph.y[graph.train])
            if self.ridge:
                loss = loss + self.ridge / 2 * sum(p.square().sum() for p in model.parameters())
            loss.backward()
            optimizer.step()


_PLAIN_NAMES: dict[Architecture, dict[str, str]] = {
    "GCN": {"weight": "lin.weight"},
    "GAT": {"weight": "lin.weight"},
    "GraphSAGE": {
        "neighbour.weight": "lin_l.weight",
        "neighbour.bias": "lin_l.bias",
        "root.weight": "lin_r.weight",
    },
    "SGC": {"weight": "lin.weight", "bias": "lin.bias"},
    "SGC-openfgl": {"weight": "lin.weight", "bias": "lin.bias"},
    "GIN": {
        "first.weight": "nn.0.weight",
        "first.bias": "nn.0.bias",
        "second.weight": "nn.2.weight",
        "second.bias": "nn.2.bias",
    },
    "MLP": {},
}
"""PyG's name of a layer's parameter by the backbone's, where they differ."""


def to_plain(architecture: Architecture, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One model's parameters as a page-lightning backbone names and holds them, for `PlainModel.load_state_dict`."""
    plain: dict[str, Tensor] = {}
    for name, tensor in state.items():
        kind, index, leaf = _split(name)
        if leaf == "attention":
            plain[f"{kind}.{index}.att_src"], plain[f"{kind}.{index}.att_dst"] = tensor.unsqueeze(0).unbind(-1)
        else:
            leaf = _PLAIN_NAMES[architecture].get(leaf, leaf) if kind == "layers" else leaf
            plain[f"{kind}.{index}.{leaf}"] = tensor.t() if tensor.dim() == 2 else tensor
        if leaf == "nn.0.weight":
            plain[f"{kind}.{index}.eps"] = tensor.new_zeros(1)
    return plain


def from_plain(architecture: Architecture, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_plain`."""
    names = {theirs: ours for ours, theirs in _PLAIN_NAMES[architecture].items()}
    result: dict[str, Tensor] = {}
    for name, tensor in state.items():
        kind, index, leaf = _split(name)
        prefix = "linear" if architecture == "SGC" else f"{kind}.{index}"
        if leaf == "att_src":
            target = state[f"{kind}.{index}.att_dst"]
            result[f"{prefix}.attention"] = torch.stack([tensor[0], target[0]], -1)
        elif leaf not in {"att_dst", "eps"}:
            leaf = names.get(leaf, leaf) if kind == "layers" else leaf
            result[f"{prefix}.{leaf}"] = tensor.t() if tensor.dim() == 2 else tensor
    return result


def _split(name: str) -> tuple[str, str, str]:
    """Kind, number and rest of a name; SGC's `linear` is its only layer."""
    kind, index, leaf = name.replace("linear.", "layers.0.", 1).split(".", 2)
    return kind, index, leaf
