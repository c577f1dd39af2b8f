"""What the audit reads: logits of every retained model, and what the nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from page_lightning.errors import ConfigurationError


@dataclass(frozen=True)
class AuditInput:
    """Logits of every retained model, and what the nodes it answers for are.

    The models of one name answer the same query graph. A retained model is named "global" or "client <id>". What
    describes nodes is one tensor where all retained models answer for the same ``N`` nodes, else one tensor per model.

    Attributes:
        target: of the federation under test, ``[N, C]`` per retained model.
        retrain: of ``R`` federations trained without the forgotten data, ``[R, N, C]`` per retained model.
        original: of ``O`` federations trained on all data, ``[O, N, C]`` per retained model.
        y: true classes, int64 ``[N]``.
        forgotten: bool ``[N]``: forgotten nodes, end points of forgotten edges, or nodes of a forgotten client.
        held_out: bool ``[N]``: nodes of the same clients that no model was trained on; empty for a forgotten client.
        retained: bool ``[N]``: nodes that all models were trained on, or that all must still serve.

    Raises:
        ConfigurationError: where names, shapes or masks do not fit together.
    """

    target: Mapping[str, Tensor]
    retrain: Mapping[str, Tensor]
    original: Mapping[str, Tensor]
    y: Tensor | Mapping[str, Tensor]
    forgotten: Tensor | Mapping[str, Tensor]
    held_out: Tensor | Mapping[str, Tensor]
    retained: Tensor | Mapping[str, Tensor]

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            message = f"The audit cannot run: {problem}."
            raise ConfigurationError(message)

    def nodes(self, model: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``y``, ``forgotten``, ``held_out`` and ``retained`` of the nodes one retained model answers for."""
        y, forgotten, held_out, retained = (
            part if isinstance(part, Tensor) else part[model]
            for part in (self.y, self.forgotten, self.held_out, self.retained)
        )
        return y, forgotten, held_out, retained

    def _problem(self) -> str | None:
        if not self.target:
            return "there is no retained model"
        if not self.target.keys() == self.retrain.keys() == self.original.keys():
            return f"models {sorted(self.target)}, {sorted(self.retrain)} and {sorted(self.original)} differ in name"
        retrains, originals = self.retrains, len(next(iter(self.original.values())))
        for name, target in self.target.items():
            y, forgotten, held_out, retained = self.nodes(name)
            for kind, mask in {"forgotten": forgotten, "held_out": held_out, "retained": retained}.items():
                if mask.dtype != torch.bool or mask.shape != y.shape:
                    return f"{kind} must be a boolean mask of {len(y)} nodes"
            if not forgotten.any():
                return "no node is forgotten"
            if (forgotten & (held_out | retained)).any():
                return "a forgotten node is also held out or retained"
            if min(retrains, originals) < 2:
                return f"it needs at least 2 retrained and 2 original models, not {retrains} and {originals}"
            for ensemble, size in ((self.retrain[name], retrains), (self.original[name], originals)):
                if ensemble.shape != (size, len(y), target.shape[-1]):
                    return f"an ensemble of {name} has shape {list(ensemble.shape)}, the model {list(target.shape)}"
        return None

    @property
    def retrains(self) -> int:
        """How many retrained federations there are, ``R``."""
        return len(next(iter(self.retrain.values())))

    def left_out(self, index: int) -> AuditInput:
        """The audit of retrained federation ``index`` by the ``R - 1`` others."""
        kept = [i for i in range(self.retrains) if i != index]
        target = {name: ensemble[index] for name, ensemble in self.retrain.items()}
        return replace(self, target=target, retrain={name: some[kept] for name, some in self.retrain.items()})
