"""What the audit reads: logits of every retained model, and what the nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from page_lightning.errors import ConfigurationError


@dataclass(frozen=True)
class AuditInput:
    """Logits of every retained model on the same ``N`` nodes, and what the nodes are.

    All models answer the same query graph. A retained model is named "global" or "client <id>".

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
    y: Tensor
    forgotten: Tensor
    held_out: Tensor
    retained: Tensor

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            message = f"The audit cannot run: {problem}."
            raise ConfigurationError(message)

    def _problem(self) -> str | None:
        if not self.target:
            return "there is no retained model"
        if not self.target.keys() == self.retrain.keys() == self.original.keys():
            return f"models {sorted(self.target)}, {sorted(self.retrain)} and {sorted(self.original)} differ in name"
        masks = {"forgotten": self.forgotten, "held_out": self.held_out, "retained": self.retained}
        for name, mask in masks.items():
            if mask.dtype != torch.bool or mask.shape != self.y.shape:
                return f"{name} must be a boolean mask of {len(self.y)} nodes"
        if not self.forgotten.any():
            return "no node is forgotten"
        if (self.forgotten & (self.held_out | self.retained)).any():
            return "a forgotten node is also held out or retained"
        retrains, originals = self.retrains, len(next(iter(self.original.values())))
        if min(retrains, originals) < 2:
            return f"it needs at least 2 retrained and 2 original models, not {retrains} and {originals}"
        for name, target in self.target.items():
            for ensemble, size in ((self.retrain[name], retrains), (self.original[name], originals)):
                if ensemble.shape != (size, len(self.y), target.shape[-1]):
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
