"""Optimizers by class path."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from page_lightning.configuration import import_class
from page_lightning.errors import ConfigurationError

_ELEMENT_WISE = {
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
}  # fmt: skip


@dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer and its options.

    The default is AdamW: Adam with coupled L2 (``Adam`` with a ``weight_decay``) shrinks every weight that a client's
    data do not touch by a full step, which ruins bag-of-words features at many clients.

    Args:
        name: class path; a bare name is looked up in ``torch.optim``.
        lr: learning rate.
        weight_decay: as the optimizer understands it.
        args: further arguments of its constructor, for instance ``{momentum: 0.9}``.
    """

    name: str = "AdamW"
    lr: float = 1e-2
    weight_decay: float = 5e-4
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def element_wise(self) -> bool:
        """Whether stepping a stack of models equals stepping each alone."""
        module, _, name = self.name.rpartition(".")
        return name in _ELEMENT_WISE and module in {"", "torch.optim"}

    def build(self, parameters: Iterable[Tensor]) -> Optimizer:
        """The optimizer over some parameters, in its fused form where there is one.

        Raises:
            ConfigurationError: there is no such optimizer or it does not take these options.
        """
        cls = import_class(self.name, "model.optimizer.name", "torch.optim")
        known = inspect.signature(cls).parameters
        fused = {"fused": True} if "fused" in known and "foreach" not in self.args else {}
        decay = {"weight_decay": self.weight_decay} if "weight_decay" in known else {}
        try:
            optimizer: Optimizer = cls(list(parameters), **{"lr": self.lr, **decay, **fused, **self.args})
        except (TypeError, ValueError) as error:
            message = f"model.optimizer: {cls.__name__} says: {error}"
            raise ConfigurationError(message) from error
        return optimizer
