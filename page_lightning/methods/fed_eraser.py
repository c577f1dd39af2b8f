"""FedEraser: the federation's history, replayed without the clients that leave (Liu et al., IWQoS 2021)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.requests import RequestKind, UnlearningRequest
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights, weighted_mean
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.history import History
from page_lightning.federation.messages import Message
from page_lightning.federation.sampling import ClientSampler
from page_lightning.federation.stack import Tensors
from page_lightning.methods.base import Need, Phase, UnlearningMethod
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.stage import run_stage


class FedEraser(UnlearningMethod):
    """Takes stored rounds' steps again: as long as they were, in the direction that clients that stay give now.

    From the initial model, for each stored round: a retained client trains a little from the model at hand; its step is
    cut or stretched to the length of the step it took then; the server adds the mean. The first stored step needs no
    training, for the initial model saw nothing.

    Args:
        variant: ``calibrated`` (the paper), ``accumulated`` (its ablation FedAccum: stored steps as they are, no
            training), ``released`` (the authors' code, its wrong round index repaired: the uniform mean is scaled,
            tensor by tensor).
        interval: between stored rounds; training must have kept the first round and every so many after it.
        ratio: calibration epochs as a share of the training's local epochs, rounded up.
        norm: length of a step over a client's whole model (``model``) or of each tensor (``tensor``).
    """

    supports: ClassVar[frozenset[RequestKind]] = frozenset({"client"})
    needs: ClassVar[frozenset[Need]] = frozenset({Need.HISTORY, Need.INITIAL_MODEL})

    def __init__(
        self,
        variant: Literal["calibrated", "accumulated", "released"] = "calibrated",
        interval: int = 2,
        ratio: float = 0.5,
        norm: Literal["model", "tensor"] = "model",
    ) -> None:
        super().__init__()
        self.variant, self.interval, self.ratio, self.norm = variant, interval, ratio, norm
        self.check_range("interval", least=1)
        self.check_range("ratio", above=0)

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self._stage: tuple[list[int], LocalTraining] | None = None
        if request.is_empty:
            return
        kept = set(self._history.rounds()) if federation.history is not None else set()
        if not kept.issuperset(self._replayed):
            message = (
                f"FedEraser replays rounds at interval {self.interval}, but fit did not keep them all: "
                f"train again with {self.history_option}"
            )
            raise ConfigurationError(message)
        self.federation = federation.fresh()
        self.federation.trained_rounds = federation.trained_rounds

    @property
    def _history(self) -> History:
        history = self.original.history
        assert history is not None  # noqa: S101 - prepare() looked
        return history

    @property
    def _replayed(self) -> range:
        """Stored rounds, counted from 1."""
        return range(1, self.original.trained_rounds + 1, self.interval)

    @property
    @override
    def history_option(self) -> str:
        return f"--history.every_n {self.interval}"

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [] if request.is_empty else [Phase("replay", len(self._replayed))]

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        federation, number = self.federation, self._replayed[step]
        slots = self._participants(number)
        if not slots:
            return {}
        device = self.retained.device
        start, stored = self._history.start(number, device), self._history.load(number, device)
        server = {name: tensor.clone() for name, tensor in federation.server_state().items()}
        old = {name: stored[name][slots] - start[name] for name in server}
        if step == 0 or self.variant == "accumulated":
            steps = old
        else:
            steps = self._calibrate(server, slots, number)
            if self.variant == "calibrated":
                steps = {n: t * r for (n, t), r in zip(steps.items(), self._ratios(old, steps), strict=True)}
        weights = client_weights(self.retained, federation.recipe.weighting, slots)[slots]
        if self.variant == "released" and step:
            mean = _rescaled(_uniform_mean(steps), _uniform_mean(old))
        else:
            mean = weighted_mean(steps, weights)
        local = self.staying
        federation.put(local, server)
        federation.put(slots, {name: server[name] + own for name, own in steps.items()})
        federation.set_server({name: server[name] + change for name, change in mean.items()})
        return {"step": torch.stack([change.square().sum() for change in mean.values()]).sum().sqrt()}

    def _participants(self, number: int) -> list[int]:
        """Retained clients that took part in a round."""
        recipe = self.original.recipe
        sampler = ClientSampler(self.clients, recipe.participation, recipe.weighting, recipe.seed)
        able = {slot for slot, count in enumerate(self.retained.count("train").tolist()) if count}
        return [slot for slot in sampler.draw(number - 1)[0] if slot in able]

    def _calibrate(self, server: Tensors, slots: list[int], number: int) -> Tensors:
        """Steps of the clients from the server's model, ``[U, ...]``, by fresh optimizers and the round's own draws."""
        recipe = self.federation.recipe
        self.channel.send(Message.of_model("down", slots, server, lambda: server), number - 1)
        if self._stage is None or self._stage[0] != slots:
            graphs = self.retained.select(slots)
            stage = LocalTraining(self.federation.server, graphs, recipe.optimizer, recipe.ridge, recipe.seed)
            self._stage = slots, stage
        stage = self._stage[1]
        stage.begin(number - 1, server, keep_optimizer_state=False)
        epochs = math.ceil(self.ratio * recipe.local_epochs)
        run_stage(stage, epochs)
        self.local_epochs += epochs * len(slots)
        ends = stage.stack.canonical()
        self.channel.send(Message.of_model("up", slots, server, lambda: ends), number - 1)
        return {name: ends[name] - tensor for name, tensor in server.items()}

    def _ratios(self, old: Tensors, new: Tensors) -> list[Tensor]:
        """By how much each client's new step, by tensor, is stretched; zero where it did not move."""
        if self.norm == "model":
            whole = _lengths(list(old.values())) / _lengths(list(new.values())).clamp(min=1e-12)
            ratios = [whole] * len(new)
        else:
            pairs = zip(old.values(), new.values(), strict=True)
            ratios = [_lengths([was]) / _lengths([now]).clamp(min=1e-12) for was, now in pairs]
        return [ratio.view(-1, *[1] * (tensor.dim() - 1)) for ratio, tensor in zip(ratios, new.values(), strict=True)]


def _lengths(tensors: list[Tensor]) -> Tensor:
    """Euclidean length per client over several tensors ``[U, ...]``."""
    return torch.stack([tensor.flatten(1).square().sum(1) for tensor in tensors]).sum(0).sqrt()


def _uniform_mean(steps: Tensors) -> Tensors:
    return {name: tensor.mean(0) for name, tensor in steps.items()}


def _rescaled(new: Tensors, old: Tensors) -> Tensors:
    """Each tensor as long as the old one."""
    return {name: t * (old[name].norm() / t.norm().clamp(min=1e-12)) for name, t in new.items()}
