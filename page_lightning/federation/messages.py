"""What crosses between the server and the clients: typed messages, counted in bytes and kept in a ledger."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Message:
    """One message of the same kind between the server and each of some clients.

    Args:
        kind: what it is, for instance ``model``.
        direction: ``up`` from client to server, ``down`` from server to client.
        clients: who sends or receives.
        shapes: name, shape and data type of the tensors that one client sends or receives.
        payload: gives the tensors themselves, with a leading client dimension where clients differ.
    """

    kind: str
    direction: Direction
    clients: tuple[int, ...]
    shapes: tuple[tuple[str, tuple[int, ...], int], ...]
    payload: Callable[[], Mapping[str, Tensor]] = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        kind: str,
        direction: Direction,
        clients: Sequence[int],
        one: Mapping[str, Tensor],
        payload: Callable[[], Any],
    ) -> Message:
        """A message of some kind; ``one`` holds tensors shaped like what one client sends or receives."""
        shapes = tuple((name, tuple(t.shape), t.element_size()) for name, t in one.items())
        return cls(kind, direction, tuple(clients), shapes, payload)

    @classmethod
    def of_model(
        cls, direction: Direction, clients: Sequence[int], model: Mapping[str, Tensor], payload: Callable[[], Any]
    ) -> Message:
        """A message that carries one model's tensors; ``model`` gives the shapes."""
        return cls.of("model", direction, clients, model, payload)

    @property
    def bytes_per_client(self) -> int:
        """Bytes that one client sends or receives."""
        total = 0
        for _, shape, size in self.shapes:
            for extent in shape:
                size *= extent
            total += size
        return total


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger.

    Args:
        round: communication round, from 0.
        kind: of message.
        direction: ``up`` or ``down``.
        clients: how many clients sent or received it.
        bytes: over all of them.
    """

    round: int
    kind: str
    direction: Direction
    clients: int
    bytes: int


class Channel:
    """Counts every message that passes.

    Attributes:
        ledger: what has passed, oldest first.
        listeners: called with each message; tests look inside with them.
    """

    def __init__(self) -> None:
        self.ledger: list[LedgerEntry] = []
        self.listeners: list[Callable[[Message], None]] = []

    def send(self, message: Message, round: int) -> None:  # noqa: A002 - the field's word
        """Pass a message on in a round."""
        count = len(message.clients)
        self.ledger.append(LedgerEntry(round, message.kind, message.direction, count, count * message.bytes_per_client))
        for listener in self.listeners:
            listener(message)

    def total(self, direction: Direction) -> int:
        """Bytes in one direction so far."""
        return sum(entry.bytes for entry in self.ledger if entry.direction == direction)

    def state(self) -> list[dict[str, Any]]:
        """The ledger as plain values."""
        return [asdict(entry) for entry in self.ledger]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take the ledger from :meth:`state`."""
        self.ledger = [LedgerEntry(**entry) for entry in state]

    def write_csv(self, path: Path) -> None:
        """Write the ledger as a table, one line per entry."""
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["round", "kind", "direction", "clients", "bytes"])
            writer.writeheader()
            writer.writerows(self.state())
