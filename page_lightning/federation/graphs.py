"""The clients' graphs as one block-diagonal graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from page_lightning.csr import csr_from_scipy, csr_to_scipy
from page_lightning.federation.flow import SparseFlow

SplitName = Literal["train", "val", "test"]


class ClientGraphs:
    """``K`` client graphs, one after the other, without edges between them; never changed once made.

    (Not a dataclass: Lightning would convert the tensors inside to the Trainer's precision.)

    Args:
        x: features, float ``[N, F]``, dense or ``torch.sparse_csr``.
        edge_index: symmetric edges without self-loops, int64 ``[2, E]``, sorted by target; ends are rows of ``x``.
        y: class of each node, int64 ``[N]``.
        sizes: nodes of each client, ``K`` numbers that sum to ``N``; a slot may be empty.
        node_id: the id of each node in the source graph, int64 ``[N]``.
        masks: ``train``, ``val`` and ``test`` nodes, bool ``[N]`` each.
        num_classes: ``C``.
        clients: the identity of each slot; 0 to ``K - 1`` unless this is a part of a larger federation.
        num_groups: federations held side by side, of ``K / G`` consecutive slots each (see :meth:`repeat`).
    """

    def __init__(
        self,
        x: Tensor,
        edge_index: Tensor,
        y: Tensor,
        sizes: Sequence[int],
        node_id: Tensor,
        masks: Mapping[SplitName, Tensor],
        num_classes: int,
        clients: Sequence[int] | None = None,
        num_groups: int = 1,
    ) -> None:
        self.x, self.edge_index, self.y = x, edge_index, y
        self.sizes, self.node_id, self.masks, self.num_classes = tuple(sizes), node_id, dict(masks), num_classes
        self.clients = tuple(range(len(self.sizes)) if clients is None else clients)
        self.num_groups = num_groups
        self._flows: dict[tuple[int, torch.dtype, SplitName | None, bool], SparseFlow] = {}

    @classmethod
    def from_assignment(
        cls,
        x: Tensor,
        edge_index: Tensor,
        y: Tensor,
        assignment: Tensor,
        masks: Mapping[SplitName, Tensor],
        num_classes: int,
        num_clients: int,
    ) -> ClientGraphs:
        """Cut a source graph into clients; edges between clients are dropped.

        Args:
            x: ``[N, F]``, dense or ``torch.sparse_csr``.
            edge_index: symmetric, without self-loops, ``[2, E]``.
            y: ``[N]``.
            assignment: the client of each node, ``[N]``; a negative one leaves the node out.
            masks: bool ``[N]`` each.
            num_classes: ``C``.
            num_clients: ``K``.
        """
        owner = assignment.numpy()
        order = np.argsort(owner, kind="stable")
        order = order[owner[order] >= 0]
        position = np.full(len(owner), -1, dtype=np.int64)
        position[order] = np.arange(len(order))
        source, target = edge_index.numpy()
        inside = (owner[source] == owner[target]) & (owner[source] >= 0)
        source, target = position[source[inside]], position[target[inside]]
        by_target = np.lexsort((source, target))
        node_id = torch.from_numpy(order)
        return cls(
            x=_select_rows(x, node_id),
            edge_index=torch.from_numpy(np.stack([source[by_target], target[by_target]])),
            y=y[node_id],
            sizes=np.bincount(owner[order], minlength=num_clients).tolist(),
            node_id=node_id,
            masks={name: mask[node_id] for name, mask in masks.items()},
            num_classes=num_classes,
        )

    @property
    def num_clients(self) -> int:
        """``K``, empty slots counted."""
        return len(self.sizes)

    @property
    def num_nodes(self) -> int:
        """``N``, over all clients."""
        return len(self.y)

    @property
    def num_features(self) -> int:
        """``F``."""
        return self.x.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.y.device

    @cached_property
    def client(self) -> Tensor:
        """The slot of each node, int64 ``[N]``."""
        slots = torch.arange(self.num_clients, device=self.device)
        return torch.repeat_interleave(slots, torch.tensor(self.sizes, device=self.device), output_size=self.num_nodes)

    def count(self, split: SplitName) -> Tensor:
        """Nodes of a split on each client, int64 ``[K]``."""
        return torch.bincount(self.client[self.masks[split]], minlength=self.num_clients)

    def to(self, device: torch.device | str) -> ClientGraphs:
        """The same graphs on another device; on the same device this object itself."""
        if torch.device(device) == self.device:
            return self
        return ClientGraphs(
            self.x.to(device),
            self.edge_index.to(device),
            self.y.to(device),
            self.sizes,
            self.node_id.to(device),
            {name: mask.to(device) for name, mask in self.masks.items()},
            self.num_classes,
            self.clients,
            self.num_groups,
        )

    def flow_at(self, nodes: Tensor, num_hops: int, dtype: torch.dtype) -> SparseFlow:
        """What a backbone runs on to answer for any set of nodes (bool ``[N]``); see :meth:`flow`."""
        return SparseFlow.build(self, num_hops, dtype, nodes, compact=False)

    def with_masks(self, masks: Mapping[SplitName, Tensor]) -> ClientGraphs:
        """The same graphs with other training, validation and test nodes."""
        return ClientGraphs(
            self.x, self.edge_index, self.y, self.sizes, self.node_id, masks, self.num_classes, self.clients,
            self.num_groups,
        )  # fmt: skip

    def repeat(self, times: int) -> ClientGraphs:
        """The same federation several times side by side, for ensembles trained as one stack."""
        if times == 1:
            return self
        offset = torch.arange(times, device=self.device).repeat_interleave(self.edge_index.shape[1]) * self.num_nodes
        if self.x.layout == torch.sparse_csr:
            x = csr_from_scipy(sparse.vstack([csr_to_scipy(self.x)] * times, format="csr")).to(self.device)
        else:
            x = self.x.repeat(times, 1)
        return ClientGraphs(
            x,
            self.edge_index.repeat(1, times) + offset,
            self.y.repeat(times),
            self.sizes * times,
            self.node_id.repeat(times),
            {name: mask.repeat(times) for name, mask in self.masks.items()},
            self.num_classes,
            self.clients * times,
            times,
        )

    def select(self, slots: Sequence[int]) -> ClientGraphs:
        """The graphs of some slots alone, in ascending slot order."""
        chosen = sorted(slots)
        if chosen == list(range(self.num_clients)):
            return self
        assignment = torch.full((self.num_clients,), -1, dtype=torch.int64)
        assignment[chosen] = torch.arange(len(chosen))
        part = ClientGraphs.from_assignment(
            self.x.cpu(),
            self.edge_index.cpu(),
            self.y.cpu(),
            assignment[self.client.cpu()],
            {name: mask.cpu() for name, mask in self.masks.items()},
            self.num_classes,
            len(chosen),
        )
        return ClientGraphs(
            part.x,
            part.edge_index,
            part.y,
            part.sizes,
            self.node_id.cpu()[part.node_id],
            part.masks,
            self.num_classes,
            tuple(self.clients[slot] for slot in chosen),
        ).to(self.device)

    def flow(
        self, num_hops: int, dtype: torch.dtype, targets: SplitName | None = None, *, compact: bool = False
    ) -> SparseFlow:
        """What a backbone runs on.

        Args:
            num_hops: message-passing layers of the backbone.
            dtype: of features and edge weights.
            targets: compute outputs of these nodes only, touching just the rows they depend on; by default all nodes.
            compact: the first layer's weights come as :class:`~page_lightning.federation.compact.CompactRows`.
        """
        key = (num_hops, dtype, targets, compact)
        if key not in self._flows:
            mask = None if targets is None else self.masks[targets]
            self._flows[key] = SparseFlow.build(self, num_hops, dtype, mask, compact=compact)
        return self._flows[key]


def _select_rows(x: Tensor, rows: Tensor) -> Tensor:
    if x.layout != torch.sparse_csr:
        return x[rows]
    return csr_from_scipy(csr_to_scipy(x)[rows.numpy()])
