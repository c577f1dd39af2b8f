"""PAGE's phases of the preset plus: training with and without the data, rewinding, a teacher that never saw them."""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.data.apply_request import apply_request, forgotten_mask
from page_lightning.data.requests import UnlearningRequest
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights, weighted_mean
from page_lightning.federation.federation import Federation
from page_lightning.federation.flow import SparseFlow
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Message
from page_lightning.federation.stack import Tensors
from page_lightning.methods.page_phases import PagePhases
from page_lightning.methods.page_presets import LEARNED, LEARNED_IN_PART, MEMORISED, CounterfactualSchedule
from page_lightning.modules.counterfactual import FRACTIONS, CounterfactualRounds, harmless_fraction
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.rounds import FederatedRounds
from page_lightning.modules.stage import run_stage
from page_lightning.modules.teacher_distillation import TeacherDistillation
from page_lightning.never_saw import blend_statistics, choose_blend, never_saw, teacher_answers

_TOLERANCE, _META_TOLERANCE, _CLIENT_TOLERANCE = 0.02, 0.05, 0.15
"""By which share validation loss may rise: of what is not memorised, of what is, and where a whole client was."""


class PlusPhases(PagePhases, ABC):
    """What the phases of the preset plus do in a round; :class:`~page_lightning.methods.PAGE` documents the options."""

    schedule: CounterfactualSchedule | None
    rewind: bool | None
    rewind_to: int
    rewind_share: float
    never_saw_lr: float

    @override
    def take_over(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().take_over(federation, clients, retained, request)
        self._difference: Tensors | None = None
        self._twins: CounterfactualRounds | None = None
        self._resumed_twins: list[dict[str, Any]] | None = None
        self._moved: dict[str, Tensors] | None = None
        self.memorised, self.unsettled = self._is_memorised(), False
        self._rounds: FederatedRounds | None = None
        self._resumed_rounds: tuple[Any, Any] | None = None

    @property
    def is_meta(self) -> bool:
        """Whether some client forgets and stays."""
        return set(self.request.touched) != set(self.request.clients)

    @property
    def trains_apart(self) -> bool:
        """Whether all models move along what the data did, found in rounds with and without them."""
        if self.follows or not self.option("counterfactual_epochs"):
            return False
        return bool(self.departing) or not self.memorised

    @property
    def forgets_on(self) -> bool:
        """Whether clients that stay forget in phases of their own."""
        return self.is_meta and (self.memorised or not self.trains_apart)

    @property
    @override
    def rewinds(self) -> bool:
        if not self.departing or self.follows or not self.option("rewind") or not self.kept_rounds():
            return False
        return self.memorised or bool(self.rewind)

    # -- rounds with and without the data, and rewinding ---------------------------------------------------------------

    @torch.no_grad()
    def _is_memorised(self) -> bool:
        """Whether the models fit the forgotten training nodes far better than validation nodes.

        After a client request the model is the server's, else each client's own.
        """
        graphs = self.clients
        seen, unseen = graphs.masks["train"] & forgotten_mask(graphs, self.request), graphs.masks["val"]
        flow = graphs.flow_at(seen | unseen, self.original.server.num_hops, self.original.dtype)
        rows = flow.target_index
        _, logits = self.original.run_clients(flow) if self.is_meta else self.original.run_server(flow)
        loss = F.cross_entropy(logits, graphs.y[rows], reduction="none")
        return bool(loss[seen[rows]].mean() < loss[unseen[rows]].mean() / 2)

    @property
    def _schedule(self) -> CounterfactualSchedule:
        if self.schedule is not None:
            return self.schedule
        if not self.departing:
            return LEARNED_IN_PART
        return MEMORISED if self.memorised else LEARNED

    def _train_with_and_without(self, number: int) -> dict[str, Tensor]:
        """A round of all clients with the data and one without them; after the last one all models move."""
        if self.unsettled:
            return {}
        schedule, stay = self._schedule, [slot for slot, size in enumerate(self.clients.sizes) if size]
        held = self.original.server_state(), self.original.client_state()
        if self._twins is None:
            rest = self.retained
            if self.forgets_on:
                leave = replace(self.request, nodes={}, edges={}, features={})
                rest = apply_request(self.clients, leave).to(self.clients.device)
            self._twins = CounterfactualRounds(self.original, rest, self.clients, schedule.epochs, self.channel)
            if self._resumed_twins is not None:
                self._twins.load(self._resumed_twins)
                self._resumed_twins = None
        loss = self._twins.run(self.original.trained_rounds + number)
        self.local_epochs += schedule.epochs * (2 * len(stay) - len(self.departing))
        server, clients = self._twins.difference()
        last = number + 1 == schedule.rounds
        if last or (number == 0 and not self.memorised):
            local = self.staying
            if self.departing:  # who stays is judged by the server's model
                start, change = _expand(held[0], len(local)), _expand(server, len(local))
            else:
                start, change = self.original.client_state(local), {n: each[local] for n, each in clients.items()}
            tolerance = _CLIENT_TOLERANCE if self.memorised else _TOLERANCE
            step = {name: schedule.scale * each for name, each in change.items()}
            share = self._bearable(local, start, step, tolerance, number + 1)
            self.unsettled = not self.memorised and not share
            if self.unsettled:
                self._twins = None
                return {"loss": loss}
        if last:
            self._twins = None
            scale = schedule.scale * share
            self.federation.set_server({n: held[0][n] + scale * change for n, change in server.items()})
            moved = {n: held[1][n] + scale * change for n, change in clients.items()}
            self.federation.put(range(self.federation.num_clients), moved)
            if self.rewinds:
                self._moved = {"server": _copy(self.federation.server_state()), "clients": moved}
        return {"loss": loss}

    def _fine_tune(self, number: int) -> dict[str, Tensor]:
        """Where no step is harmless, training has not settled, and it moves far enough by itself."""
        if not self.unsettled:
            return {}
        recipe = self.federation.recipe
        if self._rounds is None:
            self._rounds = FederatedRounds(self.federation, recipe, self.channel)
            self._server_optimizer = recipe.server_optimizer.build(self.federation.server.parameters())
            if self._resumed_rounds is not None:
                clients, server = self._resumed_rounds
                self._rounds.load_optimizer_state(clients)
                whole = self._server_optimizer.state_dict()
                self._server_optimizer.load_state_dict({**whole, "state": server})
        loss = self._rounds.run(self.retained, self.original.trained_rounds + 1 + number, self._server_optimizer)
        self.local_epochs += recipe.local_epochs * self.channel.ledger[-1].clients
        return {"loss": loss}

    def kept_rounds(self) -> list[int]:
        """Early rounds whose models fit kept."""
        history = self.original.history
        return [] if history is None else history.rounds()

    @torch.no_grad()
    def _bearable(self, local: list[int], start: Tensors, step: Tensors, tolerance: float, number: int) -> float:
        """How much of a step of some clients' models, ``[U, ...]``, their own validation nodes can bear."""
        graphs = self.retained.select(local)
        flow = graphs.flow(self.federation.server.num_hops, self.federation.dtype, "val")
        y, client = graphs.y[flow.target_index], graphs.client[flow.target_index]
        losses = []
        for fraction in FRACTIONS:
            logits = self._logits({name: start[name] + fraction * change for name, change in step.items()}, flow)
            losses.append(torch.bincount(client, F.cross_entropy(logits, y, reduction="none"), len(local)))
        sums = torch.stack(losses, 1)
        self.channel.send(Message.of("validation_loss", "up", local, {"sums": sums[0]}, lambda: {"sums": sums}), number)
        return harmless_fraction(sums.sum(0), tolerance)

    def _go_back(self) -> dict[str, Tensor]:
        """The server's model becomes the mean of the retained clients' models of an early round."""
        history = self.original.history
        assert history is not None  # noqa: S101 - prepare() looked
        start = history.nearest(self.rewind_to)
        assert start is not None  # noqa: S101
        models = history.load(start, self.retained.device)
        alive = torch.stack([tensor.flatten(1).abs().sum(1) for tensor in models.values()]).sum(0) > 0
        staying = [slot for slot, size in enumerate(self.retained.sizes) if size and alive[slot]]
        if not staying:
            message = "PAGE rewinds to an early round, but those kept were erased: train again with --history.first_n 8"
            raise ConfigurationError(message)
        weights = client_weights(self.retained, self.federation.recipe.weighting, staying)
        self.federation.set_server(weighted_mean(models, weights))
        return {}

    @override
    def _distil(self, step: int) -> dict[str, Tensor]:
        figures = super()._distil(step)
        if self.rewinds and step + 1 == self.option("rounds"):
            self._blend_with_rewound()
        return figures

    def _blend_with_rewound(self) -> None:
        """The mean of the rewound models and of those that moved along what leavers did."""
        if self._moved is None:
            return
        share, moved = self.rewind_share, self._moved
        server, clients = self.federation.server_state(), self.federation.client_state()
        self.federation.set_server({n: share * server[n] + (1 - share) * t for n, t in moved["server"].items()})
        blend = {n: share * clients[n] + (1 - share) * t for n, t in moved["clients"].items()}
        self.federation.put(range(self.federation.num_clients), blend)
        self._moved = None

    # -- meta requests: with and without the data, and the never-saw teacher -------------------------------------------

    @property
    def _asked(self) -> ClientGraphs:
        """Where forgotten nodes are queried: with the request still present, but for edges alone."""
        return self.retained if self.request.kinds == {"edge"} else self.clients

    def _train_both_ways(self) -> dict[str, Tensor]:
        """Train on from the server's model without the data and with them; keep the difference of the two.

        Units are not dropped: the masks of two different graphs would drown what the data do.
        """
        local, epochs, recipe = self._staying, self.option("counterfactual_epochs"), self.federation.recipe
        ends = []
        for graphs in (self.retained, self.clients):
            part = graphs.select(local)
            stage = LocalTraining(
                self.federation.server, part, recipe.optimizer, recipe.ridge, recipe.seed,
                self.original.trained_rounds, dropout=False,
            )  # fmt: skip
            run_stage(stage, epochs)
            ends.append(stage.stack.canonical())
        self.local_epochs += 2 * epochs * len(local)
        without, having = ends
        self._difference = {n: without[n] - having[n] for n in self.federation.server_state()}
        if not self.option("never_saw_epochs"):
            self._shift(local, 1.0)
            self.average(1)
        return {"loss": stage.reported["train/loss"]}

    def _shift(self, local: list[int], scale: float) -> None:
        """Move some clients' models along the counterfactual difference."""
        models = self.federation.client_state(local)
        difference = self._difference or {}
        self.federation.put(local, {name: models[name] + scale * change for name, change in difference.items()})

    @torch.no_grad()
    def _teach(self, local: list[int]) -> Tensor:
        """Move clients along the difference; the teacher's probabilities of their forgotten nodes."""
        asked, kept = self._asked.select(local), self.retained.select(local)
        chosen = forgotten_mask(asked, self.request)
        hops, dtype = self.federation.server.num_hops, self.federation.dtype
        asked_flow, kept_flow = asked.flow_at(chosen, hops, dtype), kept.flow(hops, dtype)
        models = self.original.client_state(local)
        own, before = self._logits(models, kept_flow).double(), self._logits(models, asked_flow).double()
        difference = torch.zeros_like(before)
        if self._difference is not None:
            moved = {name: tensor + self._difference.get(name, 0) for name, tensor in models.items()}
            difference = self._logits(moved, asked_flow).double() - before
        found = never_saw(kept, asked, chosen, own, max(hops, 1), seed=self.seed)
        gram = found.messages
        both = {name: torch.stack([getattr(each, name) for each in gram]) for name in ("gram", "moment")}
        self.channel.send(Message.of("gram", "up", local, vars(gram[0]), lambda: both), 2)
        statistics = []
        for slot in range(len(local)):
            here, check = asked.client[chosen] == slot, kept.masks["val"] & (kept.client == slot)
            parts = before[here], difference[here], asked.y[chosen][here], found.asked[here]
            statistics.append(blend_statistics(*parts, own[check], found.kept[check], kept.y[check]))
        self.channel.send(
            Message.of("blend", "up", local, {"sums": statistics[0]}, lambda: {"sums": torch.stack(statistics)}), 2
        )
        blend = choose_blend(statistics)
        self._shift(local, (1 - blend.weight) * blend.scale + blend.weight)
        return teacher_answers(before, difference, found.asked, blend).to(dtype)

    def _logits(self, models: Tensors, flow: SparseFlow) -> Tensor:
        """Of some clients' own models on their part of the graphs."""
        logits: Tensor = functional_call(self.federation.server, models, (flow,))[1]
        return logits

    def _learn_from_never_saw(self) -> dict[str, Tensor]:
        local = self._staying
        asked = self._asked.select(local)
        answers = self._teach(local)
        stage = TeacherDistillation(
            self.federation.server,
            self.original.client_state(local),
            asked,
            forgotten_mask(asked, self.request),
            answers,
            self.retained.select(local),
            lr=self.never_saw_lr,
        )
        stage.stack.load(self.federation.client_state(local))  # what is kept is the original's, from where they moved
        epochs = self.option("never_saw_epochs")
        run_stage(stage, epochs)
        self.local_epochs += epochs * len(local)
        start, end = self.original.client_state(local), stage.stack.canonical()
        step = {name: end[name] - start[name] for name in self.federation.server_state()}
        share = self._bearable(local, start, step, _META_TOLERANCE, 2)
        self.federation.put(local, {name: start[name] + share * change for name, change in step.items()})
        self.average(2)
        return dict(stage.reported)

    @override
    def method_state(self) -> dict[str, Any]:
        state = super().method_state()
        if self._difference is not None:
            state["difference"] = self._difference
        if self._twins is not None:
            state["twins"] = self._twins.state()
        if self._moved is not None:
            state["moved"] = self._moved
        if self.unsettled:
            state["unsettled"] = True
        if self._rounds is not None:
            state["rounds"] = [self._rounds.optimizer_state(), self._server_optimizer.state_dict()["state"]]
        return state

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        super().load_method_state(state)
        self._difference = state.get("difference")
        self._resumed_twins = state.get("twins")
        self._moved = state.get("moved")
        self.unsettled, self._resumed_rounds = state.get("unsettled", False), state.get("rounds")


def _expand(tensors: Tensors, count: int) -> Tensors:
    return {name: tensor.expand(count, *tensor.shape) for name, tensor in tensors.items()}


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}
