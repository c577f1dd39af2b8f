"""Models of chosen rounds, kept on disk for methods that rewind or correct the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from page_lightning.federation.federation import Federation
from page_lightning.federation.stack import Tensors


class History:
    """A folder with one file per kept round: the server's model before it and every client's after it, ``[K, ...]``.

    Files are plain tensors (weights only), replaced whole; memory holds one round at a time.

    Args:
        folder: where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, rounds: int) -> Path:
        return self.folder / f"round={rounds}.pt"

    def save(self, rounds: int, federation: Federation, start: Mapping[str, Tensor] | None = None) -> None:
        """Keep the clients' models as they are after so many rounds.

        Args:
            rounds: finished rounds.
            federation: whose models.
            start: the server's model that the last of those rounds began with.
        """
        clients = {name: tensor.cpu().clone() for name, tensor in federation.client_state().items()}
        self._write(rounds, {"clients": clients, "start": {n: t.cpu().clone() for n, t in (start or {}).items()}})

    def _write(self, rounds: int, models: dict[str, Tensors]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self._file(rounds).with_suffix(".tmp")
        torch.save(models, draft)
        draft.replace(self._file(rounds))

    def _read(self, rounds: int, device: torch.device | str = "cpu") -> dict[str, Tensors]:
        models: dict[str, Tensors] = torch.load(self._file(rounds), map_location=device, weights_only=True)
        return models

    def rounds(self) -> list[int]:
        """Kept rounds, ascending."""
        return sorted(int(path.stem.partition("=")[2]) for path in self.folder.glob("round=*.pt"))

    def load(self, rounds: int, device: torch.device | str = "cpu") -> Tensors:
        """Every client's model after so many rounds, ``[K, ...]`` by name; erased clients are zero."""
        return self._read(rounds, device)["clients"]

    def start(self, rounds: int, device: torch.device | str = "cpu") -> Tensors:
        """The server's model that the last of so many rounds began with."""
        return self._read(rounds, device)["start"]

    def nearest(self, rounds: int) -> int | None:
        """The kept round closest to a number, the earlier one of two; none where nothing is kept."""
        kept = self.rounds()
        return min(kept, key=lambda r: (abs(r - rounds), r)) if kept else None

    def erase(self, slots: Sequence[int]) -> None:
        """Overwrite some clients' models in every kept round, for good."""
        for rounds in self.rounds():
            models = self._read(rounds)
            for tensor in models["clients"].values():
                tensor[list(slots)] = 0
            self._write(rounds, models)
