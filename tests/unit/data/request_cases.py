"""Random federations and requests, and what a request must do to them, written out node by node."""

import numpy as np
import torch
from hypothesis import strategies as st
from scipy import sparse as sp

from page_lightning.csr import csr_from_scipy, csr_to_scipy
from page_lightning.data.requests import FeatureTarget, RequestContext, UnlearningRequest
from page_lightning.federation.graphs import ClientGraphs

NAME, LABELS, WIDTH = "random", 3, 7


def random_graphs(seed, sizes=(9, 6, 11), *, sparse=True, density=0.4) -> ClientGraphs:
    """Random graphs whose original ids are shuffled; a third of each client's nodes train, at least two of them."""
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    client = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = (rng.random((count, WIDTH)) < 0.4) * (1 + rng.random((count, WIDTH)))
    pairs = np.triu(rng.random((count, count)) < density, 1)
    edges = np.stack((pairs | pairs.T).nonzero())
    part = rng.integers(0, 3, count)
    for slot in range(len(sizes)):
        part[np.flatnonzero(client == slot)[:2]] = 0
    return ClientGraphs.from_assignment(
        csr_from_scipy(sp.csr_matrix(x)) if sparse else torch.from_numpy(x),
        torch.from_numpy(edges[:, rng.permutation(edges.shape[1])]),
        torch.from_numpy(rng.integers(0, LABELS, count)),
        torch.from_numpy(client),
        {name: torch.from_numpy(part == rest) for rest, name in enumerate(("train", "val", "test"))},
        LABELS,
        len(sizes),
    )


def dense(graphs: ClientGraphs) -> np.ndarray:
    return csr_to_scipy(graphs.x).toarray() if graphs.x.layout == torch.sparse_csr else graphs.x.numpy()


def plain(graphs: ClientGraphs) -> dict:
    """Everything in client graphs, by original id."""
    ids = graphs.node_id.tolist()
    x, y, client = dense(graphs), graphs.y.tolist(), graphs.client.tolist()
    masks = {split: mask.tolist() for split, mask in graphs.masks.items()}
    return {
        "nodes": {
            node: (client[row], y[row], tuple(x[row].tolist()), *(masks[split][row] for split in sorted(masks)))
            for row, node in enumerate(ids)
        },
        "edges": sorted((ids[u], ids[v]) for u, v in graphs.edge_index.T.tolist()),
        "clients": graphs.num_clients,
    }


def forget_by_hand(content: dict, request: UnlearningRequest) -> dict:
    """What `plain` must give after the request."""
    removed = {node for nodes in request.nodes.values() for node in nodes}
    removed |= {node for node, fact in content["nodes"].items() if fact[0] in request.clients}
    cut = {frozenset(edge) for edges in request.edges.values() for edge in edges}
    zero = set()
    for targets in request.features.values():
        for target in targets:
            zero |= {(n, c) for n in target.nodes for c in (range(WIDTH) if target.columns is None else target.columns)}
    nodes = {}
    for node, (client, label, x, *masks) in content["nodes"].items():
        if node not in removed:
            x = tuple(0.0 if (node, column) in zero else value for column, value in enumerate(x))
            nodes[node] = (client, label, x, *masks)
    edges = [(u, v) for u, v in content["edges"] if u in nodes and v in nodes and frozenset((u, v)) not in cut]
    return {"nodes": nodes, "edges": edges, "clients": content["clients"]}


def undirected(graphs: ClientGraphs, slot: int) -> list[tuple[int, int]]:
    """The original ids of a client's edges."""
    edges = graphs.edge_index[:, graphs.client[graphs.edge_index[0]] == slot]
    return sorted({(min(e), max(e)) for e in graphs.node_id[edges].T.tolist()})


@st.composite
def requests(draw, graphs: ClientGraphs) -> UnlearningRequest:
    """Possible requests of all kinds at once: targets in any order, more than once, edges in any direction."""
    leaver = draw(st.sampled_from([(), (), (draw(st.integers(0, graphs.num_clients - 1)),)]))
    nodes, edges, features = {}, {}, {}
    for slot in range(graphs.num_clients):
        rows = (graphs.client == slot).nonzero().flatten()
        ids, trained = graphs.node_id[rows].tolist(), graphs.node_id[rows][graphs.masks["train"][rows]].tolist()
        removable = [node for node in ids if node != trained[0]]
        nodes[slot] = tuple(draw(st.lists(st.sampled_from(removable), max_size=4)))
        pairs = undirected(graphs, slot)
        if pairs:
            chosen = draw(st.lists(st.tuples(st.sampled_from(pairs), st.booleans()), max_size=6))
            edges[slot] = tuple((v, u) if flip else (u, v) for (u, v), flip in chosen)
        columns = st.none() | st.lists(st.integers(0, WIDTH - 1), max_size=3).map(tuple)
        targets = st.builds(FeatureTarget, st.lists(st.sampled_from(ids), max_size=3).map(tuple), columns)
        features[slot] = tuple(draw(st.lists(targets, max_size=3)))
    return UnlearningRequest(leaver, nodes, edges, features, RequestContext.of(graphs, NAME))
