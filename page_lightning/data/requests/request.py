"""What has to be forgotten, as one immutable value."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from typing_extensions import override

from page_lightning.data.requests.context import RequestContext

RequestKind = Literal["node", "edge", "feature", "client"]
"""What a request is about; one request may be about several kinds."""

SCHEMA = "page_lightning/unlearn-request/1"
"""Version of the file format."""

Edge = tuple[int, int]


@dataclass(frozen=True)
class FeatureTarget:
    """Feature entries to set to zero.

    Attributes:
        nodes: Original ids.
        columns: Columns of the features, or None for whole rows.
    """

    nodes: tuple[int, ...]
    columns: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class UnlearningRequest:
    """Nodes, edges, features and clients to forget; equal and hashed by content.

    Nodes are named by their ids in the source graph, whatever was forgotten before. The order and repetition of targets
    do not matter: they are held sorted, once each, edges as `(u, v)` with `u < v`, and for features one entry for each
    set of columns. Printing a request shows no ids.

    Attributes:
        clients: Clients that leave.
        nodes: Nodes to remove with all their edges, by client.
        edges: Undirected edges to remove, by client.
        features: Entries to set to zero, by client.
        context: The federation the request was made for.
        selection: How the targets were chosen, or None where they were named; not part of the identity.
    """

    clients: tuple[int, ...]
    nodes: Mapping[int, tuple[int, ...]]
    edges: Mapping[int, tuple[Edge, ...]]
    features: Mapping[int, tuple[FeatureTarget, ...]]
    context: RequestContext
    selection: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        edges = {client: ((min(edge), max(edge)) for edge in targets) for client, targets in self.edges.items()}
        features = {client: _merged(targets) for client, targets in sorted(self.features.items())}
        object.__setattr__(self, "clients", tuple(sorted(set(self.clients))))
        object.__setattr__(self, "nodes", _sorted(self.nodes))
        object.__setattr__(self, "edges", _sorted(edges))
        object.__setattr__(self, "features", MappingProxyType({c: found for c, found in features.items() if found}))
        if self.selection is not None:
            frozen = {key: tuple(v) if isinstance(v, list) else v for key, v in sorted(self.selection.items())}
            object.__setattr__(self, "selection", MappingProxyType(frozen))

    @property
    def kinds(self) -> frozenset[RequestKind]:
        """The kinds of targets in the request."""
        targets: dict[RequestKind, object] = {
            "node": self.nodes,
            "edge": self.edges,
            "feature": self.features,
            "client": self.clients,
        }
        return frozenset(kind for kind, found in targets.items() if found)

    @property
    def undoes_poison(self) -> bool:
        """Whether it forgets what the edge attack or the label shift did."""
        return self.selection is not None and self.selection.get("mode") in {"edge_attack", "label_shift"}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not self.kinds

    @property
    def touched(self) -> tuple[int, ...]:
        """Clients with something to forget, ascending."""
        return tuple(sorted({*self.clients, *self.nodes, *self.edges, *self.features}))

    @property
    def num_nodes(self) -> int:
        """Number of nodes named for removal."""
        return sum(map(len, self.nodes.values()))

    @property
    def num_edges(self) -> int:
        """Number of undirected edges named for removal."""
        return sum(map(len, self.edges.values()))

    @property
    def num_features(self) -> int:
        """Number of nodes some or all of whose features are to be forgotten."""
        return sum(len(target.nodes) for target in chain.from_iterable(self.features.values()))

    @cached_property
    def request_id(self) -> str:
        """SHA-256 (hex) of context and targets: the same for the same request, whenever and however it was made."""
        return hashlib.sha256(_canonical(self._content())).hexdigest()

    def commitment(self, salt: str) -> str:
        """A digest to publish: it binds to the request, and without the salt nobody can test guesses against it.

        Args:
            salt: A secret, kept with the request; for instance `secrets.token_hex(16)`.

        Returns:
            HMAC-SHA-256 (hex) of the content under the salt.
        """
        return hmac.new(salt.encode(), _canonical(self._content()), hashlib.sha256).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The request as plain values, for JSON."""
        selection = None if self.selection is None else dict(self.selection)
        return {**self._content(), "request_id": self.request_id, "selection": selection}

    def to_json(self) -> str:
        """The request in its canonical form: sorted keys, no spaces."""
        return _canonical(self.to_dict()).decode()

    def write(self, path: Path | str) -> None:
        """Write the canonical form to a file that `read_request` reads."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    def _content(self) -> dict[str, Any]:
        """What `request_id` covers."""
        context = self.context
        return {
            "schema": SCHEMA,
            "dataset": {"name": context.dataset, "sha256": context.data_sha256},
            "federation": {
                "num_clients": context.num_clients,
                "partition_sha256": context.partition_sha256,
                "split_sha256": context.split_sha256,
            },
            "targets": {
                "clients": list(self.clients),
                "nodes": _by_name(self.nodes),
                "edges": _by_name(self.edges),
                "features": {
                    str(client): [
                        {"nodes": t.nodes, "columns": "all" if t.columns is None else t.columns} for t in found
                    ]
                    for client, found in self.features.items()
                },
            },
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnlearningRequest) and self.request_id == other.request_id

    def __hash__(self) -> int:
        return hash(self.request_id)

    @override
    def __repr__(self) -> str:
        counts = f"{len(self.clients)} clients, {self.num_nodes} nodes, {self.num_edges} edges"
        return f"UnlearningRequest({counts}, features of {self.num_features} nodes, id {self.request_id[:12]})"

    def __reduce__(self) -> tuple[type[UnlearningRequest], tuple[Any, ...]]:
        # Read-only mappings cannot be pickled.
        targets = (dict(self.nodes), dict(self.edges), dict(self.features))
        selection = None if self.selection is None else dict(self.selection)
        return UnlearningRequest, (self.clients, *targets, self.context, selection)


def _sorted(targets: Mapping[int, Iterable[Any]]) -> Mapping[int, tuple[Any, ...]]:
    """Targets sorted, once each, clients ascending, without clients that have none."""
    unique = {client: tuple(sorted(set(found))) for client, found in sorted(targets.items())}
    return MappingProxyType({client: found for client, found in unique.items() if found})


def _merged(targets: Iterable[FeatureTarget]) -> tuple[FeatureTarget, ...]:
    """The same entries with each node in exactly one target, whole rows first."""
    targets = tuple(targets)
    whole = set(chain.from_iterable(target.nodes for target in targets if target.columns is None))
    columns: dict[int, set[int]] = {}
    for target in targets:
        for node in set(target.nodes) - whole if target.columns else ():
            columns.setdefault(node, set()).update(target.columns or ())
    nodes: dict[tuple[int, ...], list[int]] = {}
    for node, chosen in sorted(columns.items()):
        nodes.setdefault(tuple(sorted(chosen)), []).append(node)
    merged = [FeatureTarget(tuple(sorted(whole)))] if whole else []
    return (*merged, *(FeatureTarget(tuple(nodes[chosen]), chosen) for chosen in sorted(nodes)))


def _by_name(targets: Mapping[int, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    return {str(client): found for client, found in targets.items()}


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
