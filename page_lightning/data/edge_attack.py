"""Poisoned edges, and the request that forgets exactly them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from page_lightning.data.requests import RequestContext, UnlearningRequest
from page_lightning.data.requests.located import Ints, undirected_codes
from page_lightning.data.streams import Stream, generator
from page_lightning.errors import PoisonError
from page_lightning.federation.graphs import ClientGraphs

EdgeAttackKind = Literal["heterophilous_train", "heterophilous", "any"]
"""What injected edges join: training nodes of different classes, any nodes of different classes, or any nodes."""


def edge_attack(
    graphs: ClientGraphs, ratio: float, seed: int = 0, kind: EdgeAttackKind = "heterophilous_train", *, name: str
) -> tuple[ClientGraphs, UnlearningRequest]:
    """Inject random edges into every client's graph (the edge attack of GIF and PAGE, figure 2).

    Evaluate on `graphs`, which are clean; applying the request to the poisoned graphs gives them back. The edges of one
    client do not depend on the other clients.

    Args:
        graphs: All clients' graphs; not changed.
        ratio: Injected undirected edges as a share of each client's own, rounded down; may exceed 1.
        seed: Seed of the draw, not negative.
        kind: `heterophilous_train` joins training nodes of different classes, `heterophilous` any nodes of different
            classes, `any` any nodes.
        name: Name of the data set, for the request.

    Returns:
        The poisoned graphs and the request of the injected edges.

    Raises:
        PoisonError: The ratio or seed makes no sense, or a client has too few free pairs of nodes.
    """
    if not (math.isfinite(ratio) and ratio > 0) or seed < 0:
        msg = f"edge attack: ratio {ratio} must be positive and seed {seed} not negative"
        raise PoisonError(msg)
    edges = graphs.edge_index.cpu().numpy()
    client, node_id = graphs.client.cpu().numpy(), graphs.node_id.cpu().numpy()
    trained = graphs.masks["train"].cpu().numpy()
    candidate = trained if kind == "heterophilous_train" else np.ones_like(trained)
    label = node_id if kind == "any" else graphs.y.cpu().numpy()
    upward = edges[:, edges[0] < edges[1]]
    wanted = np.floor(ratio * np.bincount(client[upward[0]], minlength=graphs.num_clients) + 1e-9).astype(np.int64)

    injected = []
    for slot, count in enumerate(wanted.tolist()):
        nodes = np.flatnonzero(candidate & (client == slot))
        own = upward[:, client[upward[0]] == slot]
        taken = own[:, candidate[own].all(0) & (label[own[0]] != label[own[1]])]
        free = _num_pairs(label[nodes]) - taken.shape[1]
        if count > free:
            msg = f"edge attack: client {slot} has {free} free pairs of nodes for {count} edges; lower the ratio"
            raise PoisonError(msg)
        stream = generator(seed, Stream.EDGE_ATTACK, slot)
        injected.append(_draw(stream, nodes, label, undirected_codes(taken, graphs.num_nodes), count, graphs.num_nodes))
    added = np.concatenate(injected, axis=1)

    both = np.concatenate([edges, added, added[::-1]], axis=1)
    both = both[:, np.lexsort(both)]
    poisoned = ClientGraphs(
        graphs.x,
        torch.from_numpy(both).to(graphs.device),
        graphs.y,
        graphs.sizes,
        graphs.node_id,
        graphs.masks,
        graphs.num_classes,
        graphs.clients,
    )
    ids, owner = node_id[added].T, client[added[0]]
    targets = {slot: tuple((u, v) for u, v in ids[owner == slot].tolist()) for slot in range(graphs.num_clients)}
    selection = {"mode": "edge_attack", "kind": kind, "ratio": ratio, "seed": seed}
    return poisoned, UnlearningRequest((), {}, targets, {}, RequestContext.of(poisoned, name), selection)


def _num_pairs(label: npt.NDArray[np.int64]) -> int:
    """Pairs of nodes with different labels."""
    per_label = np.unique(label, return_counts=True)[1]
    return int(len(label) ** 2 - (per_label**2).sum()) // 2


def _draw(stream: np.random.Generator, nodes: Ints, label: Ints, taken: Ints, count: int, num_nodes: int) -> Ints:
    """Distinct pairs `[2, count]` of nodes with different labels, none of them taken, of which there are enough."""
    pairs = np.empty(0, np.int64)
    while len(pairs) < count:
        ends = nodes[stream.integers(len(nodes), size=(2, 2 * count + 16))]
        codes = undirected_codes(ends[:, label[ends[0]] != label[ends[1]]], num_nodes)
        codes = np.concatenate([pairs, codes[~np.isin(codes, taken)]])
        pairs = codes[np.sort(np.unique(codes, return_index=True)[1])]
    return np.stack(np.divmod(pairs[:count], num_nodes))
