"""Refusals of what cannot be forgotten, before any work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from page_lightning.data.requests.located import ABSENT, Ints, LocatedRequest, undirected_codes
from page_lightning.data.requests.request import UnlearningRequest
from page_lightning.errors import RequestError
from page_lightning.federation.graphs import ClientGraphs


def check_request(
    graphs: ClientGraphs, request: UnlearningRequest, origin: str, *, training_nodes_only: bool = False
) -> None:
    """Refuse a request that cannot be fulfilled.

    Args:
        graphs: All clients' graphs.
        request: The request.
        origin: Start of every message: the option or file that the request comes from.
        training_nodes_only: Refuse nodes, and features of nodes, that are not for training.

    Raises:
        RequestError: A target does not exist or is no training node, or too little would be left.
    """
    located = LocatedRequest(graphs, request)
    for client in request.touched:
        check_client(graphs, client, origin)
    groups = (
        (located.node_ids, located.node_rows, located.node_clients),
        (located.whole_ids, located.whole_rows, located.whole_clients),
        (located.cell_ids, located.cell_rows, located.cell_clients),
    )
    trained = graphs.masks["train"].cpu().numpy()
    for ids, rows, clients in groups:
        _check_nodes(graphs, ids, rows, clients, origin)
        if training_nodes_only and not trained[rows].all():
            msg = f"{origin}: node {ids[~trained[rows]][0]} is no training node; request.pool all allows it"
            raise RequestError(msg)
    _check_edges(graphs, located, origin)
    outside = (located.cell_columns < 0) | (located.cell_columns >= graphs.num_features)
    if outside.any():
        column = located.cell_columns[outside][0]
        msg = f"{origin}: feature column {column} does not exist; there are {graphs.num_features}, numbered from 0"
        raise RequestError(msg)
    _check_rest(graphs, located, trained, origin)


def check_client(graphs: ClientGraphs, client: int, origin: str) -> None:
    """Refuse a client that is not in the federation.

    Raises:
        RequestError: There is no such client, or it has left.
    """
    if not 0 <= client < graphs.num_clients:
        msg = f"{origin}: client {client} does not exist; there are {graphs.num_clients}, numbered from 0"
        raise RequestError(msg)
    if not graphs.sizes[client]:
        msg = f"{origin}: client {client} has already left the federation"
        raise RequestError(msg)


def _check_nodes(graphs: ClientGraphs, ids: Ints, rows: Ints, clients: Ints, origin: str) -> None:
    absent = rows == ABSENT
    if absent.any():
        msg = f"{origin}: node {ids[absent][0]} is not in the federation: unknown, or already forgotten"
        raise RequestError(msg)
    owner = graphs.client.cpu().numpy()[rows]
    if (owner != clients).any():
        first = np.flatnonzero(owner != clients)[0]
        msg = f"{origin}: node {ids[first]} belongs to client {owner[first]}, not to client {clients[first]}"
        raise RequestError(msg)


def _check_edges(graphs: ClientGraphs, located: LocatedRequest, origin: str) -> None:
    ids, rows, clients = located.edge_ids, located.edge_rows, located.edge_clients
    owner = graphs.client.cpu().numpy()
    across = (rows != ABSENT).all(1) & (owner[rows[:, 0]] != owner[rows[:, 1]])
    if across.any():
        (u, v), (a, b) = ids[across][0], owner[rows[across][0]]
        msg = (
            f"{origin}: nodes {u} and {v} belong to clients {a} and {b}; edges between clients are in no client's graph"
        )
        raise RequestError(msg)
    for end in (0, 1):
        _check_nodes(graphs, ids[:, end], rows[:, end], clients, origin)
    existing = undirected_codes(graphs.edge_index.cpu().numpy(), graphs.num_nodes)
    missing = ~np.isin(undirected_codes(rows.T, graphs.num_nodes), existing)
    if missing.any():
        u, v = ids[missing][0]
        msg = f"{origin}: there is no edge between nodes {u} and {v}, or it is already forgotten"
        raise RequestError(msg)


def _check_rest(graphs: ClientGraphs, located: LocatedRequest, trained: npt.NDArray[np.bool_], origin: str) -> None:
    """Every client that stays and could train must still be able to."""
    staying = np.array(graphs.sizes) > 0
    staying[located.clients] = False
    if len(located.clients) and not staying.any():
        msg = f"{origin}: all clients would leave"
        raise RequestError(msg)
    left = trained.copy()
    left[located.node_rows] = False
    owner = graphs.client.cpu().numpy()
    before, after = (np.bincount(owner[mask], minlength=graphs.num_clients) for mask in (trained, left))
    drained = np.flatnonzero(staying & (before > 0) & (after == 0))
    if len(drained):
        count = before[drained[0]]
        msg = f"{origin}: client {drained[0]} would keep none of its {count} training nodes; let the client leave"
        raise RequestError(msg)
    if len(located.clients) and not after[staying].any():
        msg = f"{origin}: none of the clients that stay has a training node"
        raise RequestError(msg)
