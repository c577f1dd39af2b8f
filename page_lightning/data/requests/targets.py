"""Targets as people write them: plain lists, or lists for each client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Self

from page_lightning.data.requests.located import ABSENT, NodeRows
from page_lightning.data.requests.request import Edge, FeatureTarget
from page_lightning.errors import RequestError
from page_lightning.federation.graphs import ClientGraphs

T = TypeVar("T")

_NAMES = ("clients", "nodes", "edges", "features")


@dataclass(frozen=True)
class NamedTargets:
    """The targets of a file, each under its client.

    Attributes:
        clients: Clients that leave.
        nodes: Nodes, by client.
        edges: Edges, by client.
        features: Feature entries, by client.
    """

    clients: tuple[int, ...]
    nodes: Mapping[int, tuple[int, ...]]
    edges: Mapping[int, tuple[Edge, ...]]
    features: Mapping[int, tuple[FeatureTarget, ...]]

    @classmethod
    def parse(cls, content: object, graphs: ClientGraphs, origin: str) -> Self:
        """Bring the value of the key `targets` into this form.

        Args:
            content: A mapping with some of `clients`, `nodes`, `edges` and `features`.
            graphs: All clients' graphs, which tell the client of a target that is not listed under one.
            origin: Start of every message.

        Raises:
            RequestError: The content is malformed, or a target outside any list of a client is unknown.
        """
        if not isinstance(content, dict):
            msg = f"{origin}: targets must be an object with some of {', '.join(_NAMES)}"
            raise RequestError(msg)
        unknown = sorted(set(content) - set(_NAMES))
        if unknown:
            msg = f"{origin}: targets.{unknown[0]} is unknown; choose {', '.join(_NAMES)}"
            raise RequestError(msg)
        owners = _Owners(graphs, origin)
        return cls(
            clients=_integers(content.get("clients", []), f"{origin}: targets.clients"),
            nodes=_by_client(content.get("nodes", []), f"{origin}: targets.nodes", _integers, owners.of_nodes),
            edges=_by_client(content.get("edges", []), f"{origin}: targets.edges", _edges, owners.of_edges),
            features=_by_client(
                content.get("features", []), f"{origin}: targets.features", _features, owners.of_features
            ),
        )


class _Owners:
    """Lists of targets divided among the clients that hold them."""

    def __init__(self, graphs: ClientGraphs, origin: str) -> None:
        self._rows, self._client, self._origin = NodeRows(graphs), graphs.client.cpu().numpy(), origin

    def _clients(self, nodes: Sequence[int]) -> list[int]:
        ids = np.array(nodes, dtype=np.int64)
        rows = self._rows(ids)
        if (rows == ABSENT).any():
            msg = (
                f"{self._origin}: node {ids[rows == ABSENT][0]} is not in the federation: unknown, or already forgotten"
            )
            raise RequestError(msg)
        return self._client[rows].tolist() if len(rows) else []

    def of_nodes(self, nodes: Sequence[int]) -> dict[int, tuple[int, ...]]:
        return _grouped(zip(self._clients(nodes), nodes, strict=True))

    def of_edges(self, edges: Sequence[Edge]) -> dict[int, tuple[Edge, ...]]:
        return _grouped(zip(self._clients([edge[0] for edge in edges]), edges, strict=True))

    def of_features(self, features: Sequence[FeatureTarget]) -> dict[int, tuple[FeatureTarget, ...]]:
        return _grouped(
            (client, FeatureTarget(nodes, target.columns))
            for target in features
            for client, nodes in self.of_nodes(target.nodes).items()
        )


def _grouped(targets: Iterable[tuple[int, T]]) -> dict[int, tuple[T, ...]]:
    groups: dict[int, list[T]] = {}
    for client, target in targets:
        groups.setdefault(client, []).append(target)
    return {client: tuple(found) for client, found in groups.items()}


def _by_client(
    value: object,
    where: str,
    parse: Callable[[Any, str], tuple[T, ...]],
    divide: Callable[[Sequence[T]], Mapping[int, tuple[T, ...]]],
) -> Mapping[int, tuple[T, ...]]:
    """A list, or lists by client, as lists by client."""
    if not isinstance(value, dict) or "nodes" in value:
        return divide(parse(value, where))
    for client in value:
        if not client.isdecimal() or client != str(int(client)):
            msg = f"{where}: {client!r} is no client"
            raise RequestError(msg)
    return {int(client): parse(targets, f"{where}.{client}") for client, targets in value.items()}


def _integers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        msg = f"{where} must be a list"
        raise RequestError(msg)
    for item in value:
        if type(item) is not int or not 0 <= item < 2**63:
            msg = f"{where} must hold integers from 0, got {item!r}"
            raise RequestError(msg)
    return tuple(value)


def _edges(value: object, where: str) -> tuple[Edge, ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        msg = f"{where} must be a list of pairs of nodes"
        raise RequestError(msg)
    _integers([end for pair in value for end in pair], where)
    return tuple((u, v) for u, v in value)


def _features(value: Any, where: str) -> tuple[FeatureTarget, ...]:  # noqa: ANN401 - any JSON value
    targets = value if isinstance(value, list) else [value]
    for target in targets:
        if not isinstance(target, dict) or "nodes" not in target or set(target) - {"nodes", "columns"}:
            msg = f"{where} must hold objects with 'nodes' and, unless whole rows are meant, 'columns'"
            raise RequestError(msg)
    return tuple(
        FeatureTarget(
            _integers(target["nodes"], f"{where}.nodes"),
            None if target.get("columns", "all") == "all" else _integers(target["columns"], f"{where}.columns"),
        )
        for target in targets
    )
