"""FUSED: knowledge overwritten by a reversible adapter (Zhong et al., CVPR 2025, arXiv 2502.20709)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.requests import RequestKind, UnlearningRequest
from page_lightning.federation.aggregation import client_weights, weighted_mean
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Message
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.randomness import stream_key
from page_lightning.federation.stack import Tensors
from page_lightning.methods.base import Need, Phase, UnlearningMethod
from page_lightning.modules.adapter_training import Adapter, AdapterTraining
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.stage import run_stage


class FUSED(UnlearningMethod):
    """Freezes the model and trains a small addition to its critical layers on the clients that stay.

    ``critical_layers``: every client trains one epoch from the server's model; layers that change most are critical.
    ``adapter``: federated rounds on the retained clients train the additions alone. Nothing of the trained model is
    changed, so that :meth:`without_adapter` gives it back bit for bit. Small GNNs forget little by it: only weights
    that the retained data touch are overwritten.

    Args:
        adapter: ``sparse``: a random part of the weights, the same for all clients (the paper); ``low_rank``:
            products of two factors (released code); their products are averaged, not the factors.
        layers: how many are critical, among the weight matrices; all where there are fewer.
        density: share of a critical layer's weights that a sparse adapter may change.
        rank: of a low-rank adapter.
        rounds: federated rounds.
        reduction: of a layer's change: ``sum`` (the paper), ``mean`` over its weights, ``relative`` to their size.
        identify: clients that find the critical layers: those that stay (``retained``) or, as in the paper, ``all``.
        seed: of the adapter.
    """

    supports: ClassVar[frozenset[RequestKind]] = frozenset({"client"})

    def __init__(
        self,
        adapter: Adapter = "sparse",
        layers: int = 2,
        density: float = 0.5,
        rank: int = 16,
        rounds: int = 30,
        reduction: Literal["sum", "mean", "relative"] = "sum",
        identify: Literal["retained", "all"] = "retained",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.adapter, self.layers, self.density, self.rank, self.rounds = adapter, layers, density, rank, rounds
        self.reduction, self.identify, self.seed = reduction, identify, seed
        self.check_range("layers", "rank", "rounds", least=1)
        self.check_range("density", above=0, most=1)

    @override
    def needs_for(self, request: UnlearningRequest) -> frozenset[Need]:
        return frozenset({Need.LEAVER_ONLINE}) if self.identify == "all" else frozenset()

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.additions: Tensors = {}

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [] if request.is_empty else [Phase("critical_layers", 1), Phase("adapter", self.rounds)]

    def without_adapter(self) -> Federation:
        """The federation as it was, bit for bit."""
        return self.original

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        return self._find_critical_layers() if phase.name == "critical_layers" else self._train(step)

    def _find_critical_layers(self) -> dict[str, Tensor]:
        """One epoch of plain SGD: any adaptive optimizer would move every weight alike."""
        federation = self.federation
        graphs = self.clients if self.identify == "all" else self.retained
        slots = [slot for slot, count in enumerate(graphs.count("train").tolist()) if count]
        server, recipe = federation.server_state(), federation.recipe
        self.channel.send(Message.of_model("down", slots, server, lambda: server), 0)
        optimizer = OptimizerOptions("SGD", recipe.optimizer.lr, 0.0)
        stage = LocalTraining(
            federation.server, graphs.select(slots), optimizer, seed=recipe.seed, round=self.original.trained_rounds
        )
        run_stage(stage, 1)
        self.local_epochs += len(slots)
        ends = stage.stack.canonical()
        matrices = [name for name, tensor in server.items() if tensor.dim() >= 2]
        change = torch.stack([self._change(ends[name] - server[name], server[name]) for name in matrices], 1)
        self.channel.send(Message.of("layer_change", "up", slots, {"change": change[0]}, lambda: {"change": change}), 0)
        weights = client_weights(graphs, recipe.weighting, slots)[slots].to(change)
        order = (weights @ change).argsort(descending=True, stable=True)[: self.layers].sort().values
        self.additions = {matrices[place]: torch.zeros_like(server[matrices[place]]) for place in order.tolist()}
        return {"change": (weights @ change).sum()}

    def _change(self, step: Tensor, before: Tensor) -> Tensor:
        """How much each client changed a layer, ``[U]``."""
        total = step.abs().flatten(1).sum(1)
        if self.reduction == "mean":
            return total / before.numel()
        return total / before.abs().sum() if self.reduction == "relative" else total

    def _masks(self) -> Tensors | None:
        """Entries that a sparse adapter may change; every client draws the same from the seed."""
        if self.adapter == "low_rank":
            return None
        draws = torch.Generator(self.retained.device).manual_seed(stream_key(self.seed, 13) >> 1)
        return {
            name: torch.rand(tensor.shape, generator=draws, device=tensor.device, dtype=torch.float32) < self.density
            for name, tensor in self.additions.items()
        }

    def _train(self, step: int) -> dict[str, Tensor]:
        federation, masks, original = self.federation, self._masks(), self.original
        slots = [slot for slot, count in enumerate(self.retained.count("train").tolist()) if count]
        number = original.trained_rounds + step
        sent = self.additions if masks is None else {n: t[masks[n]] for n, t in self.additions.items()}
        self.channel.send(Message.of("adapter", "down", slots, sent, lambda: sent), step + 1)
        stage = AdapterTraining(
            original.server,
            self.retained.select(slots),
            self.additions,
            masks,
            self.rank,
            federation.recipe.optimizer,
            federation.recipe.seed,
            number,
        )
        run_stage(stage, federation.recipe.local_epochs)
        self.local_epochs += federation.recipe.local_epochs * len(slots)
        learned = {name: tensor.detach() for name, tensor in stage.additions().items()}
        one = {name: tensor[0] for name, tensor in stage.sent().items()}
        self.channel.send(Message.of("adapter", "up", slots, one, stage.sent), step + 1)
        weights = client_weights(self.retained, federation.recipe.weighting, slots)[slots]
        self.additions = weighted_mean(learned, weights)
        base = original.server_state()
        federation.put(self.staying, base)
        federation.put(slots, {name: base[name] + tensor for name, tensor in learned.items()})
        federation.set_server({name: base[name] + tensor for name, tensor in self.additions.items()})
        return {"loss": stage.reported["loss"]}

    @override
    def method_state(self) -> dict[str, Any]:
        return {"additions": dict(self.additions)}

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        self.additions = dict(state["additions"])
