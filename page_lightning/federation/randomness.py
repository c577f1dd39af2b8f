"""Random streams keyed by (seed, round, client): resuming is bit-identical and clients do not disturb each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def stream_key(*parts: int) -> int:
    """Mix integers into one 64-bit key; neighbouring inputs give unrelated keys (splitmix64's finaliser)."""
    key = 0
    for part in parts:
        key = (key + (part & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
        key ^= key >> 31
    return key


class DropoutStream:
    """Dropout masks for stacked rows, drawn from one generator per client.

    Bernoulli draws are a quarter of a small epoch on a CPU; here random bytes are compared with a threshold instead, so
    a probability is a multiple of 1/256 where that is exact and of 1/65536 elsewhere.

    Args:
        seed: of the stream, or one for each client.
        clients: the client of each block of rows, in block order.
        round: communication round.
        device: where masks are drawn.
    """

    def __init__(
        self,
        seed: int | Sequence[int],
        clients: Sequence[int],
        round: int = 0,  # noqa: A002 - the field's word
        device: torch.device | str = "cpu",
    ) -> None:
        seeds = [seed] * len(clients) if isinstance(seed, int) else seed
        self.blocks = list(zip(seeds, clients, strict=True))
        self.generators = [torch.Generator(device) for _ in clients]
        self._buffers: dict[tuple[tuple[int, ...], int], tuple[Tensor, list[Tensor]]] = {}
        self.restart(round)

    def restart(self, round: int) -> None:  # noqa: A002 - the field's word
        """Begin the stream of a round; the same (seed, round, client) gives the same masks again."""
        self.round, self._draws = round, 0
        for (seed, client), generator in zip(self.blocks, self.generators, strict=True):
            generator.manual_seed(stream_key(seed, round, client) >> 1)

    def next_seeds(self) -> list[int]:
        """One fresh seed per client, for modules that draw their own noise."""
        self._draws += 1
        return [stream_key(seed, self.round, client, self._draws) >> 1 for seed, client in self.blocks]

    def keep(self, sizes: tuple[int, ...], width: int, probability: float) -> Tensor:
        """A boolean mask ``[N, width]`` that is false with the given probability.

        Args:
            sizes: rows of each client's block, which sum to ``N``.
            width: columns.
            probability: of dropping an element, in [0, 1).
        """
        kind = torch.uint8 if (probability * 256).is_integer() else torch.int16
        words = -(-width * kind.itemsize // 8)
        buffer, blocks = self._buffer(sizes, words)
        for block, generator in zip(blocks, self.generators, strict=True):
            block.random_(-(2**63), None, generator=generator)
        noise = buffer.view(kind)[:, :width]
        threshold = round(probability * 256) if kind == torch.uint8 else round(probability * 65536) - 32768
        return noise >= threshold

    def _buffer(self, sizes: tuple[int, ...], words: int) -> tuple[Tensor, list[Tensor]]:
        if (sizes, words) not in self._buffers:
            buffer = torch.empty(sum(sizes), words, dtype=torch.int64, device=self.generators[0].device)
            self._buffers[sizes, words] = buffer, list(buffer.split(sizes))
        return self._buffers[sizes, words]
