"""Random requests: the same on every machine, each client's targets drawn without regard to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from page_lightning.data.requests.checks import check_client
from page_lightning.data.requests.context import RequestContext
from page_lightning.data.requests.located import Ints
from page_lightning.data.requests.request import Edge, FeatureTarget, RequestKind, UnlearningRequest
from page_lightning.data.streams import Stream, keys
from page_lightning.errors import RequestError
from page_lightning.federation.graphs import ClientGraphs

Pool = Literal["train", "all"]

_KIND_KEY: dict[RequestKind, int] = {"node": 0, "edge": 1, "feature": 2, "client": 3}


class RequestSampler:
    """Draws targets.

    Args:
        graphs: All clients' graphs.
        pool: Draw among training nodes and the edges between them, or among all.
        ratio: Share of each client's pool, rounded down but at least one target unless 0 (and unless it is the client's
            only node); of a client request the share of all clients, rounded, at least one.
        count: Instead of `ratio`, the number of targets on each client, or of clients.
        seed: Seed of the draw, not negative.
        score: A number for each node `[N]`: those with the highest are taken, and edges with the highest sum of both
            ends; chance decides between equals. By default chance decides alone.
    """

    def __init__(
        self,
        graphs: ClientGraphs,
        pool: Pool,
        ratio: float | None,
        count: int | None,
        seed: int,
        score: Tensor | None = None,
    ) -> None:
        self.graphs, self.pool, self.ratio, self.count, self.seed = graphs, pool, ratio, count, seed
        self.score = np.zeros(graphs.num_nodes) if score is None else score.double().cpu().numpy()
        self.node_id, self.client = graphs.node_id.cpu().numpy(), graphs.client.cpu().numpy()
        self.in_pool = (
            (graphs.masks["train"] if pool == "train" else torch.ones_like(graphs.masks["train"])).cpu().numpy()
        )

    def draw(
        self, kind: RequestKind, name: str, clients: Sequence[int], selection: Mapping[str, Any]
    ) -> UnlearningRequest:
        """One request.

        Args:
            kind: What to draw.
            name: Name of the data set.
            clients: Where to draw it; of a client request, the clients that may leave.
            selection: What the request tells about the draw.

        Returns:
            The request.

        Raises:
            RequestError: There is less to draw from than asked for, or nothing.
        """
        context = RequestContext.of(self.graphs, name)
        if kind == "client":
            return UnlearningRequest(self._clients(clients), {}, {}, {}, context, selection)
        if kind == "edge":
            return UnlearningRequest((), {}, self._edges(clients), {}, context, selection)
        nodes = self._nodes(kind, clients)
        if kind == "node":
            return UnlearningRequest((), nodes, {}, {}, context, selection)
        features = {client: (FeatureTarget(found),) for client, found in nodes.items()}
        return UnlearningRequest((), {}, {}, features, context, selection)

    def _nodes(self, kind: RequestKind, clients: Sequence[int]) -> dict[int, tuple[int, ...]]:
        rows = np.flatnonzero(self.in_pool & np.isin(self.client, clients))
        chosen = rows[self._chosen(kind, clients, rows, self.score[rows], self.node_id[rows])]
        owner, ids = self.client[chosen], self.node_id[chosen]
        return {client: tuple(ids[owner == client].tolist()) for client in np.unique(owner).tolist()}

    def _edges(self, clients: Sequence[int]) -> dict[int, tuple[Edge, ...]]:
        source, target = self.graphs.edge_index.cpu().numpy()
        once = (source < target) & self.in_pool[source] & self.in_pool[target] & np.isin(self.client[source], clients)
        source, target = source[once], target[once]
        ends = np.sort(np.stack([self.node_id[source], self.node_id[target]]), axis=0)
        chosen = self._chosen("edge", clients, source, self.score[source] + self.score[target], *ends)
        owner, pairs = self.client[source[chosen]], ends[:, chosen].T
        return {
            client: tuple((u, v) for u, v in pairs[owner == client].tolist()) for client in np.unique(owner).tolist()
        }

    def _clients(self, clients: Sequence[int]) -> tuple[int, ...]:
        present = np.array(clients, dtype=np.int64)
        size = len(present)
        wanted = self.count if self.count is not None else round((self.ratio or 0) * size)
        if self.count is None and self.ratio:
            wanted = max(wanted, 1)
        if wanted > size:
            msg = f"request.count {wanted}: there are only {size} clients"
            raise RequestError(msg)
        order = np.argsort(keys(self.seed, Stream.REQUEST, _KIND_KEY["client"], present))
        return tuple(present[order[:wanted]].tolist())

    def _chosen(
        self, kind: RequestKind, clients: Sequence[int], rows: Ints, score: npt.NDArray[np.float64], *ids: Ints
    ) -> npt.NDArray[np.bool_]:
        """Which of the candidates `[M]` are taken; `rows` tells the client of each, `ids` key its chance."""
        owner = self.client[rows]
        size = np.bincount(owner, minlength=self.graphs.num_clients)
        quota = self._quota(kind, clients, size)
        order = np.lexsort((keys(self.seed, Stream.REQUEST, _KIND_KEY[kind], *ids), -score, owner))
        rank = np.empty(len(rows), np.int64)
        rank[order] = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
        taken: npt.NDArray[np.bool_] = rank < quota[owner]
        return taken

    def _quota(self, kind: RequestKind, clients: Sequence[int], size: Ints) -> Ints:
        """How many targets each client gives `[K]`, for pools of the given sizes `[K]`."""
        what = f"{'training ' if self.pool == 'train' else ''}{'edges' if kind == 'edge' else 'nodes'}"
        if self.count is None:
            ratio = self.ratio or 0
            spared = 1 if kind == "node" else 0  # a client's only training node is not drawn unless ratio says so
            share: Ints = np.floor(ratio * size + 1e-9).astype(np.int64)
            quota: Ints = np.maximum(share, size > spared) if ratio else share
            if ratio and not quota.any():
                msg = f"request.pool {self.pool}: the chosen clients have no {what} to draw from"
                raise RequestError(msg)
            return quota
        for client in clients:
            if size[client] < self.count:
                msg = f"request.count {self.count}: client {client} has only {size[client]} {what} to draw from"
                raise RequestError(msg)
        return np.full(len(size), self.count, dtype=np.int64)


def chosen_clients(graphs: ClientGraphs, clients: Sequence[int] | Literal["all"]) -> list[int]:
    """Clients by the option `request.clients`; `all` are those that have not left.

    Raises:
        RequestError: A client does not exist or has left.
    """
    if clients == "all":
        return [client for client, size in enumerate(graphs.sizes) if size]
    for client in clients:
        check_client(graphs, client, "request.clients")
    return sorted(set(clients))
