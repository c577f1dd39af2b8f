"""Which clients take part in a round, and what each counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import Weighting, client_weights
from page_lightning.federation.graphs import ClientGraphs


@dataclass
class ClientSampler:
    """Draws the clients of each round among those with training nodes.

    Args:
        graphs: all clients.
        fraction: share of clients that take part; at least one does.
        weighting: what a client counts in the mean.
        seed: the draw of a round depends on (seed, round) alone.

    Raises:
        ConfigurationError: no client has a training node.
    """

    graphs: ClientGraphs
    fraction: float
    weighting: Weighting
    seed: int
    able: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.able = [slot for slot, count in enumerate(self.graphs.count("train").tolist()) if count > 0]
        if not self.able:
            message = "no client has a training node: raise data.ratios or lower data.num_clients"
            raise ConfigurationError(message)
        self._everyone = tuple(self.able), self._weights(self.able)

    @property
    def idle(self) -> list[int]:
        """Slots without training nodes: they receive the server's model and never train."""
        return [slot for slot in range(self.graphs.num_clients) if slot not in set(self.able)]

    def draw(self, round: int) -> tuple[tuple[int, ...], Tensor]:  # noqa: A002 - the field's word
        """The slots of a round and the weights ``[K]`` of all clients, zero for the others."""
        if self.fraction == 1:
            return self._everyone
        count = max(1, round_half_up(self.fraction * len(self.able)))
        generator = np.random.default_rng([self.seed, round, 1])
        slots = sorted(generator.choice(self.able, count, replace=False).tolist())
        return tuple(slots), self._weights(slots)

    def _weights(self, slots: list[int]) -> Tensor:
        return client_weights(self.graphs, self.weighting, slots).to(self.graphs.device)


def round_half_up(value: float) -> int:
    """The nearest integer, halves upwards."""
    return int(value + 0.5)
