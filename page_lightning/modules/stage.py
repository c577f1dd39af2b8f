"""Stages: LightningModules that a Trainer can drive alone and that a round drives with a short loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.stack import ClientStack


class Stage(LightningModule):
    """A step of a method. :func:`run_stage` and ``Trainer.fit`` give the same weights.

    Nested in another module a stage must not call ``self.log``; :meth:`report` keeps its figures in ``reported`` there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reported: dict[str, Tensor] = {}

    @abstractmethod
    @override
    def training_step(self, batch: Any = None, batch_idx: int = 0) -> Tensor:
        """The loss of one full-batch step."""

    @property
    @abstractmethod
    def stage_optimizers(self) -> list[Optimizer]:
        """The optimizers that one step steps."""

    @override
    def configure_optimizers(self) -> list[Optimizer]:
        return self.stage_optimizers

    @override
    def train_dataloader(self) -> list[int]:
        return [0]

    def report(self, name: str, value: Tensor) -> None:
        """Log a figure where a Trainer drives this stage, else keep it for whoever does."""
        self.reported[name] = value.detach()
        if self._trainer is not None:
            self.log(name, value.detach(), batch_size=1)


class StackStage(Stage):
    """A stage that trains some clients' models side by side with Adam.

    Args:
        backbone: a built backbone.
        models: the clients' models, ``[U, ...]`` by name.
        num_clients: ``U``.
        lr: learning rate.
    """

    def __init__(self, backbone: Backbone, models: Mapping[str, Tensor], num_clients: int, lr: float) -> None:
        super().__init__()
        self.stack = ClientStack(backbone, num_clients)
        self.stack.load(models)
        self._optimizers = [OptimizerOptions("Adam", lr, 0.0).build(self.stack.tensors)]

    @property
    @override
    def stage_optimizers(self) -> list[Optimizer]:
        return self._optimizers


def mean_per_client(client: Tensor, num_clients: int, dtype: torch.dtype) -> Tensor:
    """Weights that turn a sum over nodes into the sum of each client's mean.

    Args:
        client: slot of each node, int64 ``[n]``.
        num_clients: how many slots there are.
        dtype: of the weights.

    Returns:
        ``[n]``.
    """
    count = torch.bincount(client, minlength=num_clients).clamp(min=1)
    return (1 / count.to(dtype))[client]


def run_stage(stage: Stage, steps: int) -> None:
    """Take some optimisation steps.

    Args:
        stage: what to train.
        steps: full-batch steps, which a method calls epochs.
    """
    optimizers = stage.stage_optimizers
    with torch.enable_grad():
        for step in range(steps):
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            stage.training_step(None, step).backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
