"""Which outputs a request changes, by how far a model looks."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from page_lightning.data.requests import UnlearningRequest
from page_lightning.data.requests.located import ABSENT, LocatedRequest
from page_lightning.federation.graphs import ClientGraphs


def affected_nodes(
    graphs: ClientGraphs, request: UnlearningRequest, num_hops: int, *, degree_normalized: bool
) -> Tensor:
    """Nodes whose output changes when a request is carried out and the weights stay, and the removed nodes themselves.

    Hops count on the graphs as given. A feature reaches ``L`` hops. A lost edge reaches ``L - 1`` hops from its ends, a
    removed node ``L`` hops; one hop more each where messages are normalised by the sender's degree (GCN, SGC).

    Args:
        graphs: clients' graphs before the request, all or a part of them.
        request: the request.
        num_hops: ``L``, 0 for a model without message passing.
        degree_normalized: whether a node's message depends on its degree.

    Returns:
        Bool ``[N]``.
    """
    located, more = LocatedRequest(graphs, request), int(degree_normalized and num_hops > 0)
    source, target = graphs.edge_index.cpu().numpy()
    shape = (graphs.num_nodes, graphs.num_nodes)
    adjacency = sparse.csr_matrix((np.ones(len(source), dtype=np.int32), (target, source)), shape)
    owner = np.array(graphs.clients, dtype=np.int64)[graphs.client.cpu().numpy()]
    seeds = [
        (np.concatenate([located.node_rows, np.flatnonzero(np.isin(owner, located.clients))]), num_hops + more),
        (np.concatenate([located.whole_rows, located.cell_rows]), num_hops),
    ]
    if num_hops:
        seeds.append((located.edge_rows.ravel(), num_hops - 1 + more))
    found = np.zeros(graphs.num_nodes, dtype=bool)
    for rows, radius in seeds:
        near = np.zeros(graphs.num_nodes, dtype=bool)
        near[rows[rows != ABSENT]] = True
        for _ in range(radius):
            near |= adjacency @ near.astype(np.int32) > 0
        found |= near
    return torch.from_numpy(found).to(graphs.device)
