"""The clients' graphs after a request: exactly what was asked for is gone, and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from page_lightning.csr import csr_from_scipy, csr_to_scipy
from page_lightning.data.requests.checks import check_request
from page_lightning.data.requests.located import ABSENT, LocatedRequest, undirected_codes
from page_lightning.data.requests.request import UnlearningRequest
from page_lightning.federation.graphs import ClientGraphs


def apply_request(graphs: ClientGraphs, request: UnlearningRequest) -> ClientGraphs:
    """Remove the targets of a request.

    Nodes go with all their edges, edges in both directions, features become zero (their labels and edges stay), and the
    slot of a client that leaves becomes empty. Original ids and client slots keep their meaning. All targets refer to
    the graphs as given, so the order of kinds does not matter.

    Args:
        graphs: All clients' graphs, for which the request was made; not changed.
        request: The request.

    Returns:
        New graphs.

    Raises:
        StaleRequestError: The request was made for other graphs.
        RequestError: The request cannot be fulfilled.
    """
    request.context.check(graphs, request.context.dataset, "the request")
    check_request(graphs, request, "the request")
    located = LocatedRequest(graphs, request)
    owner = graphs.client.cpu().numpy().copy()
    owner[np.isin(owner, located.clients)] = -1
    owner[located.node_rows] = -1
    edges = graphs.edge_index.cpu().numpy()
    removed = undirected_codes(located.edge_rows.T, graphs.num_nodes)
    kept = ~np.isin(undirected_codes(edges, graphs.num_nodes), removed)
    rest = ClientGraphs.from_assignment(
        _without_features(graphs.x.cpu(), located),
        graphs.edge_index.cpu()[:, torch.from_numpy(kept)],
        graphs.y.cpu(),
        torch.from_numpy(owner),
        {split: mask.cpu() for split, mask in graphs.masks.items()},
        graphs.num_classes,
        graphs.num_clients,
    )
    return ClientGraphs(
        rest.x,
        rest.edge_index,
        rest.y,
        rest.sizes,
        graphs.node_id.cpu()[rest.node_id],
        rest.masks,
        graphs.num_classes,
        graphs.clients,
    ).to(graphs.device)


def forgotten_nodes(graphs: ClientGraphs, request: UnlearningRequest) -> Tensor:
    """The nodes that a request is about, for metrics.

    Those are removed nodes, nodes with removed features, training nodes at the ends of removed edges, and training
    nodes of clients that leave.

    Args:
        graphs: Clients' graphs, all or a part of them; usually those before the request.
        request: The request; what the graphs do not hold is left out.

    Returns:
        Rows of `graphs`, int64 `[M]`, ascending, on the device of `graphs`.
    """
    located = LocatedRequest(graphs, request)
    trained = graphs.masks["train"].cpu().numpy()
    owner = np.array(graphs.clients, dtype=np.int64)[graphs.client.cpu().numpy()]
    ends = located.edge_rows[located.edge_rows != ABSENT]
    leaving = np.flatnonzero(trained & np.isin(owner, located.clients))
    rows = np.concatenate([located.node_rows, located.whole_rows, located.cell_rows, ends[trained[ends]], leaving])
    return torch.from_numpy(np.unique(rows[rows != ABSENT])).to(graphs.device)


def forgotten_mask(graphs: ClientGraphs, request: UnlearningRequest) -> Tensor:
    """:func:`forgotten_nodes` as a mask, bool ``[N]``."""
    mask = torch.zeros(graphs.num_nodes, dtype=torch.bool, device=graphs.device)
    mask[forgotten_nodes(graphs, request)] = True
    return mask


def affected_clients(graphs: ClientGraphs, request: UnlearningRequest) -> tuple[int, ...]:
    """Slots of `graphs`, all clients or a part of them, that hold something a request is about, ascending."""
    return tuple(slot for slot, client in enumerate(graphs.clients) if client in request.touched)


def _without_features(x: Tensor, located: LocatedRequest) -> Tensor:
    """Features `[N, F]` with the named entries zero; a sparse matrix does not store them."""
    if x.layout != torch.sparse_csr:
        x = x.clone()
        x[located.whole_rows] = 0
        x[located.cell_rows, located.cell_columns] = 0
        return x
    if not len(located.whole_rows) and not len(located.cell_rows):
        return x
    matrix = csr_to_scipy(x)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    stored = _codes(rows, matrix.indices, matrix.shape[1])
    drop = np.isin(rows, located.whole_rows)
    drop |= np.isin(stored, _codes(located.cell_rows, located.cell_columns, matrix.shape[1]))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[~drop], minlength=matrix.shape[0]))])
    return csr_from_scipy(sparse.csr_matrix((matrix.data[~drop], matrix.indices[~drop], indptr), shape=matrix.shape))


def _codes(rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer], width: int) -> npt.NDArray[np.int64]:
    return rows.astype(np.int64) * width + columns
