"""How much each client counts in the server's average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from page_lightning.federation.graphs import ClientGraphs

Weighting = Literal["nodes", "train_nodes", "uniform"]


def client_weights(graphs: ClientGraphs, weighting: Weighting, clients: Sequence[int]) -> Tensor:
    """FedAvg weights: ``[K]``, zero for clients that do not take part, summing to one.

    Args:
        graphs: all clients.
        weighting: by nodes (PAGE Eq. 3 as OpenFGL reads it), by training nodes, or all alike.
        clients: slots that take part.
    """
    if weighting == "uniform":
        size = torch.ones(graphs.num_clients, dtype=torch.float64)
    elif weighting == "train_nodes":
        size = graphs.count("train").cpu().double()
    else:
        size = torch.tensor(graphs.sizes, dtype=torch.float64)
    weights = torch.zeros_like(size)
    index = torch.tensor(list(clients), dtype=torch.int64)
    weights[index] = size[index] / size[index].sum()
    return weights


def weighted_mean(models: Mapping[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
    """Mean of clients' models ``[K, ...]`` with weights ``[K]``; tensors that are not floating-point are left out."""
    return {
        name: torch.tensordot(weights.to(tensor), tensor, 1)
        for name, tensor in models.items()
        if tensor.is_floating_point()
    }
