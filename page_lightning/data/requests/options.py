"""The options that describe a request on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from page_lightning.data.requests.checks import check_request
from page_lightning.data.requests.context import RequestContext
from page_lightning.data.requests.reading import read_request
from page_lightning.data.requests.request import RequestKind, UnlearningRequest
from page_lightning.data.requests.sampling import Pool, RequestSampler, chosen_clients
from page_lightning.errors import RequestError
from page_lightning.federation.graphs import ClientGraphs

DEFAULT_RATIO = 0.1


@dataclass(frozen=True)
class RequestOptions:
    """What to forget: targets drawn at random, or those of a file.

    Args:
        kind: What to draw: nodes, edges, the whole feature rows of nodes, or clients; or `poison` for exactly what
            data.poison did.
        ratio: Share of each client's pool to draw, rounded down but at least one target unless 0 (and unless it is the
            client's only node); of a client request the share of all clients, rounded, at least one. By default 0.1.
        count: Instead of ratio, the number of targets to draw on each client, or of clients.
        clients: Clients to draw from, by default all; of a client request, the clients that leave.
        pool: Draw among training nodes and the edges between them, or among all. For a file, all also allows nodes that
            are not for training.
        seed: Seed of the draw.
        path: A JSON or CSV file that names the targets by original ids, instead of a draw.
    """

    kind: RequestKind | Literal["poison"] = "node"
    ratio: float | None = None
    count: int | None = None
    clients: list[int] | Literal["all"] = "all"
    pool: Pool = "train"
    seed: int = 0
    path: str | None = None

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            RequestError: They do, or a value makes no sense.
        """
        drawn = self.ratio is not None or self.count is not None
        if self.kind == "poison" and (drawn or self.clients != "all" or self.path is not None):
            msg = "request.kind poison is what data.poison did; leave request.ratio, .count, .clients and .path out"
            raise RequestError(msg)
        if self.path is not None and (drawn or self.clients != "all"):
            msg = f"request.path {self.path} names the targets; leave request.ratio, .count and .clients out"
            raise RequestError(msg)
        if self.ratio is not None and self.count is not None:
            msg = f"request.ratio {self.ratio} and request.count {self.count} contradict each other; give one of them"
            raise RequestError(msg)
        if self.kind == "client" and self.clients != "all" and drawn:
            msg = "request.clients names the clients that leave; leave request.ratio and request.count out"
            raise RequestError(msg)
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            msg = f"request.ratio {self.ratio} must be between 0 and 1"
            raise RequestError(msg)
        if (self.count or 0) < 0 or self.seed < 0:
            msg = f"request.count {self.count} and request.seed {self.seed} must not be negative"
            raise RequestError(msg)

    def build(
        self,
        graphs: ClientGraphs,
        name: str,
        score: Tensor | None = None,
        poison: UnlearningRequest | None = None,
    ) -> UnlearningRequest:
        """Draw or read the request and check that it can be fulfilled.

        Args:
            graphs: All clients' graphs.
            name: Name of the data set.
            score: A number for each node `[N]`, to draw those with the highest instead of random ones.
            poison: The request that undoes the poison of the data.

        Returns:
            The request.

        Raises:
            RequestError: It cannot be fulfilled.
        """
        if self.kind == "poison":
            if poison is None:
                msg = "request.kind poison: the data are not poisoned; choose data.poison"
                raise RequestError(msg)
            if poison.context != RequestContext.of(graphs, name):
                msg = "request.kind poison: an earlier request changed the data; the poison has to be forgotten first"
                raise RequestError(msg)
            return poison
        if self.path is not None:
            return read_request(self.path, graphs, name, pool=self.pool)
        candidates = chosen_clients(graphs, self.clients)
        named = self.kind == "client" and self.clients != "all"
        if score is not None and self.kind == "client":
            msg = "request.kind client: clients have no scores; name them in request.clients"
            raise RequestError(msg)
        ratio = 1.0 if named else DEFAULT_RATIO if self.ratio is None and self.count is None else self.ratio
        sampler = RequestSampler(graphs, self.pool, ratio, self.count, self.seed, score)
        selection = {
            "mode": "named" if named else "random" if score is None else "score",
            "kind": self.kind,
            "ratio": ratio,
            "count": self.count,
            "clients": self.clients,
            "pool": self.pool,
            "seed": self.seed,
        }
        request = sampler.draw(self.kind, name, candidates, selection)
        check_request(graphs, request, f"request.kind {self.kind}")
        return request
