"""Data poisoned before training, and the request that undoes it: what separates methods where clean data cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod

from typing_extensions import override

from page_lightning.data.edge_attack import EdgeAttackKind, edge_attack
from page_lightning.data.label_shift import label_shift
from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.graphs import ClientGraphs


class Poison(ABC):
    """Spoils the clients' graphs before training; ``request.kind poison`` forgets exactly that."""

    @abstractmethod
    def apply(self, graphs: ClientGraphs, name: str) -> tuple[ClientGraphs, UnlearningRequest]:
        """Poison the graphs.

        Args:
            graphs: all clients' clean graphs; not changed.
            name: name of the data set, for the request.

        Returns:
            The poisoned graphs and the request that undoes it.

        Raises:
            PoisonError: the options make no sense for these graphs.
        """


class EdgeAttack(Poison):
    """Edges between nodes of different classes in every client's graph (GIF; figure 2 of PAGE).

    After the request the clean graphs are left, so its accuracy alone says little at small ratios: read ``recovered``.

    Args:
        ratio: injected undirected edges as a share of each client's own, rounded down; may exceed 1.
        kind: ``heterophilous_train`` joins training nodes of different classes, ``heterophilous`` any nodes of
            different classes, ``any`` any nodes.
        seed: of the draw.
    """

    def __init__(self, ratio: float = 0.5, kind: EdgeAttackKind = "heterophilous_train", seed: int = 0) -> None:
        self.ratio, self.kind, self.seed = ratio, kind, seed

    @override
    def apply(self, graphs: ClientGraphs, name: str) -> tuple[ClientGraphs, UnlearningRequest]:
        return edge_attack(graphs, self.ratio, self.seed, self.kind, name=name)


class LabelShift(Poison):
    """Training nodes labelled as the next class, ``(y + 1) mod C``; labels of other nodes stay true.

    Args:
        clients: clients all of whose training nodes are poisoned; the request is that they leave.
        ratio: instead, the share of every client's training nodes to poison, rounded down but at least one; the request
            is to remove these nodes.
        seed: of the draw of nodes.
    """

    def __init__(self, clients: list[int] | None = None, ratio: float | None = None, seed: int = 0) -> None:
        self.clients, self.ratio, self.seed = clients, ratio, seed

    @override
    def apply(self, graphs: ClientGraphs, name: str) -> tuple[ClientGraphs, UnlearningRequest]:
        return label_shift(graphs, name=name, clients=self.clients, ratio=self.ratio, seed=self.seed)
