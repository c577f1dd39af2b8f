"""Which nodes a report judges, and on which graph each is queried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from page_lightning.data.apply_request import forgotten_nodes
from page_lightning.data.requests import UnlearningRequest
from page_lightning.data.requests.located import LocatedRequest
from page_lightning.federation.federation import Federation
from page_lightning.federation.flow import Flow
from page_lightning.federation.graphs import ClientGraphs

GLOBAL = "global"


@dataclass(frozen=True, eq=False)
class NodeSet:
    """The nodes that one retained model is judged on.

    Args:
        rows: of the original graphs, int64 ``[n]``.
        y: their classes, int64 ``[n]``.
        forgotten: bool ``[n]``.
        held_out: never trained on, of the clients with forgotten nodes, bool ``[n]``; none of a leaver, whose unseen
            nodes move along with those it trained on.
        retained: training nodes that stay, bool ``[n]``; after a client's leave also the test nodes that stay.
        test: test nodes of clients that stay, bool ``[n]``.
    """

    rows: Tensor
    y: Tensor
    forgotten: Tensor
    held_out: Tensor
    retained: Tensor
    test: Tensor


class Queries:
    """Logits of every retained model on the nodes it is judged on.

    Forgotten nodes (and nodes whose features go) are queried on the original graph, with the request still present;
    a leaver's nodes on its own graph; everything else, ends of removed edges too, on the graph that is left.

    The retained models are the server's and each client's own. A meta request (nodes, edges, features) judges a
    client's model on its own nodes, and where it has none to forget on the others' forgotten ones; a client request
    judges the model of each client that stays on the leavers' nodes beside its own.

    Attributes:
        edges: forgotten edges, rows of the original graphs, int64 ``[2, E]``.

    Args:
        clients: graphs before the request.
        retained: graphs after it.
        request: what is forgotten.
        num_hops: of the backbone.
        dtype: of the models.
    """

    def __init__(
        self,
        clients: ClientGraphs,
        retained: ClientGraphs,
        request: UnlearningRequest,
        num_hops: int,
        dtype: torch.dtype,
    ) -> None:
        self.clients, self.retained, self.request = clients, retained, request
        self.before, self.after = clients.flow(num_hops, dtype), retained.flow(num_hops, dtype)
        self.departed = list(request.clients)
        self.edges = torch.from_numpy(LocatedRequest(clients, request).edge_rows.T.copy()).to(clients.device)
        leaver = torch.zeros(clients.num_clients, dtype=torch.bool, device=clients.device)
        leaver[self.departed] = True
        self.of_leaver = leaver[clients.client]
        self.forgotten = torch.zeros(clients.num_nodes, dtype=torch.bool, device=clients.device)
        self.forgotten[forgotten_nodes(clients, request)] = True
        self.kept_row = self._rows_after()
        touched = torch.zeros_like(leaver)
        touched[list(request.touched)] = True
        never = (clients.masks["val"] | clients.masks["test"]) & (self.kept_row.ge(0) | self.of_leaver)
        self.held_out = never & touched[clients.client] & ~self.forgotten
        self.steady = self.held_out & ~self.of_leaver  # all answers about a leaver's nodes change when it is forgotten
        self.kept_train = clients.masks["train"] & ~self.forgotten & ~self.of_leaver
        self.kept_test = clients.masks["test"] & ~self.of_leaver & self.kept_row.ge(0)
        self.on_original = self.of_leaver | (self.kept_row < 0)
        self.on_original[forgotten_nodes(clients, replace(request, edges={}))] = True
        if self.departed:
            self._leavers = clients.select(self.departed)
            self._leavers_flow = self._leavers.flow(num_hops, dtype)
        self._strangers: set[str] = set()
        self.sets = self._node_sets()

    def _rows_after(self) -> Tensor:
        """The row of each node in the graphs after the request, -1 where it is gone, ``[N]``."""
        highest = int(self.clients.node_id.max()) + 1 if self.clients.num_nodes else 0
        place = torch.full((highest,), -1, dtype=torch.int64, device=self.clients.device)
        place[self.retained.node_id] = torch.arange(self.retained.num_nodes, device=self.clients.device)
        return place[self.clients.node_id]

    @property
    def judged_by(self) -> str:
        """The models whose scores head a table: each client's own, or the server's for a client request."""
        return GLOBAL if self.departed else "local"

    def _node_sets(self) -> dict[str, NodeSet]:
        client, everyone = self.clients.client, torch.ones_like(self.forgotten)
        sets = {GLOBAL: self._node_set(everyone)}
        for slot in range(self.clients.num_clients):
            if self.retained.sizes[slot]:
                own = client == slot
                if self.departed:
                    sets[f"client {slot}"] = self._node_set(own | self.of_leaver)
                elif (own & self.forgotten).any():
                    sets[f"client {slot}"] = self._node_set(own)
                else:  # nothing of its own is forgotten: does it know the others' forgotten nodes?
                    sets[f"client {slot}"] = self._node_set(own | self.forgotten | self.held_out)
                    self._strangers.add(f"client {slot}")
        return sets

    def _node_set(self, nodes: Tensor) -> NodeSet:
        rows = nodes.nonzero().squeeze(1)
        kept = self.kept_train | self.kept_test if self.departed else self.kept_train
        parts = (self.forgotten, self.steady, kept & ~self.steady, self.kept_test)
        return NodeSet(rows, self.clients.y[rows], *(part[rows] for part in parts))

    def _both(self, run: Callable[[Flow], tuple[Tensor, Tensor]]) -> Tensor:
        before, after = run(self.before)[1], run(self.after)[1]
        kept = after[self.kept_row.clamp(min=0)] if len(after) else before
        return torch.where(self.on_original[:, None], before, kept)

    @torch.no_grad()
    def local(self, federation: Federation) -> Tensor:
        """Logits of each client's own model on its own nodes, ``[N, C]``; a leaver's rows are the server's."""
        logits = self._both(federation.run_clients)
        if self.departed:
            logits[self.of_leaver] = federation.run_server(self._leavers_flow)[1]
        return logits

    @torch.no_grad()
    def logits(self, federation: Federation) -> dict[str, Tensor]:
        """Logits of every retained model on its :class:`NodeSet`, ``[n, C]`` each."""
        result = {GLOBAL: self._both(federation.run_server)}
        local = self.local(federation)
        for name, nodes in self.sets.items():
            if name == GLOBAL:
                continue
            slot = int(name.removeprefix("client "))
            if name in self._strangers:
                result[name] = self._both(partial(federation.run_client, slot))[nodes.rows]
                continue
            own = local[nodes.rows]
            if self.departed:
                own[self.of_leaver[nodes.rows]] = federation.run_client(slot, self._leavers_flow)[1]
            result[name] = own
        return result
