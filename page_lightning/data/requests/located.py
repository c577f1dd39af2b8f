"""The targets of a request as rows of the clients' graphs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from page_lightning.data.requests.request import UnlearningRequest
from page_lightning.federation.graphs import ClientGraphs

Ints = npt.NDArray[np.int64]
ABSENT = -1
"""Row of an id that the graphs do not hold."""


class NodeRows:
    """Finds the rows of original ids.

    Args:
        graphs: The clients' graphs.
    """

    def __init__(self, graphs: ClientGraphs) -> None:
        node_id = graphs.node_id.cpu().numpy()
        self._order = np.argsort(node_id)
        self._sorted = node_id[self._order]

    def __call__(self, ids: Ints) -> Ints:
        """Rows of ids of any shape, `ABSENT` for those the graphs do not hold."""
        if not len(self._sorted):
            return np.full_like(ids, ABSENT)
        place = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[place] == ids, self._order[place], ABSENT)


class LocatedRequest:
    """Targets of a request as arrays; the client that each was listed under stands beside it.

    Args:
        graphs: The clients' graphs, all or a part of them.
        request: The request; targets outside the graphs have the row `ABSENT`.

    Attributes:
        clients: Identities of the clients that leave.
        node_ids, node_rows, node_clients: Nodes to remove, each `[M]`.
        edge_ids, edge_rows: Ends of the edges to remove, each `[M, 2]`; edge_clients `[M]`.
        whole_ids, whole_rows, whole_clients: Nodes whose whole feature row goes, each `[M]`.
        cell_ids, cell_rows, cell_clients, cell_columns: Single feature entries to set to zero, each `[M]`.
    """

    def __init__(self, graphs: ClientGraphs, request: UnlearningRequest) -> None:
        rows = NodeRows(graphs)
        self.clients = np.array(request.clients, dtype=np.int64)

        self.node_clients = _listed_under(request.nodes)
        self.node_ids = _flat(request.nodes)
        self.node_rows = rows(self.node_ids)

        self.edge_clients = _listed_under(request.edges)
        self.edge_ids = _flat(request.edges).reshape(-1, 2)
        self.edge_rows = rows(self.edge_ids)

        whole = {client: [t for t in found if t.columns is None] for client, found in request.features.items()}
        whole_nodes = {client: [node for t in found for node in t.nodes] for client, found in whole.items()}
        self.whole_clients = _listed_under(whole_nodes)
        self.whole_ids = _flat(whole_nodes)
        self.whole_rows = rows(self.whole_ids)

        ids, clients, columns = [], [], []
        for client, found in request.features.items():
            for target in found:
                chosen = target.columns or ()
                ids.append(np.repeat(np.array(target.nodes, dtype=np.int64), len(chosen)))
                columns.append(np.tile(np.array(chosen, dtype=np.int64), len(target.nodes)))
                clients.append(np.full(len(ids[-1]), client, dtype=np.int64))
        self.cell_ids, self.cell_clients, self.cell_columns = _joined(ids), _joined(clients), _joined(columns)
        self.cell_rows = rows(self.cell_ids)


def undirected_codes(edges: Ints, num_nodes: int) -> Ints:
    """One number for each edge `[2, M]` between rows, the same in both directions."""
    codes: Ints = np.minimum(edges[0], edges[1]) * num_nodes + np.maximum(edges[0], edges[1])
    return codes


def _flat(targets: Mapping[int, Any]) -> Ints:
    return np.array(list(chain.from_iterable(targets.values())), dtype=np.int64)


def _listed_under(targets: Mapping[int, Any]) -> Ints:
    return np.repeat(np.array(list(targets), dtype=np.int64), [len(found) for found in targets.values()])


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])
