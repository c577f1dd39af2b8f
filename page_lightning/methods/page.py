"""PAGE: prototype-guided local unlearning and negative distillation on adversarial graphs (arXiv 2508.02485)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.data.apply_request import apply_request, forgotten_nodes
from page_lightning.data.requests import UnlearningRequest
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.dense import DenseFlow
from page_lightning.federation.federation import Federation
from page_lightning.federation.flow import SparseFlow
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Message
from page_lightning.federation.randomness import stream_key
from page_lightning.federation.recipe import Recipe
from page_lightning.federation.stack import Tensors
from page_lightning.influence import InfluenceRule, prototype_similarity
from page_lightning.methods.base import Need, Phase, UnlearningMethod
from page_lightning.methods.page_presets import LEARNED, MEMORISED, PRESETS, Departure, Features, Preset
from page_lightning.modules.adversarial_graphs import AdversarialGraphGenerator, Divergence, attack, random_graphs
from page_lightning.modules.counterfactual import FRACTIONS, CounterfactualRounds, harmless_fraction
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.negative_distillation import Negative, NegativeDistillation, Positive
from page_lightning.modules.prototype_unlearning import PrototypeUnlearning, Retain, Target
from page_lightning.modules.stage import run_stage
from page_lightning.modules.teacher_distillation import TeacherDistillation
from page_lightning.never_saw import blend_statistics, choose_blend, never_saw, teacher_answers
from page_lightning.prototypes import Prototypes, class_prototypes, gram_schmidt, principal_basis

_META_PHASES = {
    "counterfactual": "counterfactual_epochs",
    "never_saw": "never_saw_epochs",
    "local_unlearning": "unlearn_epochs",
}
"""Phases of clients that forget and stay, and the option without which each is left out."""
_META_TOLERANCE, _CLIENT_TOLERANCE = 0.05, 0.15
"""By which share validation loss may rise; without a whole client it rises for good reason."""


class PAGE(UnlearningMethod):
    """PAGE. A meta request (nodes, edges, features) takes four phases, a client request the last two.

    1. ``prototypes``: every client sends its class prototypes; the server chooses the influenced clients.
    2. ``local_unlearning``: the clients that forget move their forgotten prototypes.
    3. ``adversarial_graphs``: a graph on which each one's original and unlearned model disagree. For a client that
       leaves, the unlearned model is a fresh random one.
    4. ``distillation``: influenced clients learn the unlearned model's answers there, and keep their own elsewhere;
       then the server averages.

    A preset sets every option that is not given. ``plus`` has phases of its own, before or in place of these:

    - A meta request: ``counterfactual`` (train on with and without the data: the difference is what they still do) and
      ``never_saw`` (distil the forgotten nodes towards models that never saw them).
    - A client request: ``counterfactual_rounds`` (the same for all clients, with and without the leavers; every model
      then moves along the difference). Where the leavers' labels are memorised, ``rewind`` goes back to the retained
      clients' mean of an early round, ``distillation`` teaches it the clients' own answers, and the result is the mean
      of the two models.

    Args:
        preset: ``literal``: Eq. 9 and Algorithm 1 as printed; ``fixed``: the settled readings, repaired; ``plus``: what
            was measured to forget.
        target: what forgotten prototypes move to: ``private`` (Eq. 9), ``common`` (the introduction), ``matched``
            (gradient matching), ``zero`` (ablation without a basis).
        retain: beside it: ``none`` (the paper), ``ce`` or ``kd`` on the retained training nodes.
        unlearn_epochs: steps of local unlearning ("meta-unlearn epochs" of Table 4).
        unlearn_lr: their learning rate; the default is Table 4's.
        basis: ``gram_schmidt`` (two passes, double precision) or ``principal`` (SVD of normalised prototypes).
        energy: share of the prototypes' squared length that a principal basis keeps. With 1 and more prototypes than
            hidden units the basis is the whole space and the private part zero.
        max_rank: most directions of a principal basis.
        basis_source: whose prototypes span it: all other clients' (the text) or the influenced ones' (Fig. 1).
        influence: which clients are influenced.
        graph: probes of phase 3: ``adversarial``, ``random`` (ablation), or ``none`` (ablation without phases 3, 4).
        graph_nodes: ``N`` of Algorithm 1.
        graph_steps: its ascent steps at most.
        graph_lr: their learning rate.
        features: where its features start: the client's ``marginal`` distribution, ``normal`` or ``uniform``.
        epsilon: largest change of a feature.
        relative_epsilon: count it in standard deviations of the client's feature.
        penalty: ``lambda`` of Algorithm 1.
        flips: ``K`` of Algorithm 1.
        divergence: of Algorithm 1: ``ce`` (the paper) or ``kl``.
        literal_graph: Algorithm 1's initial logits and flips exactly as printed.
        alpha: weight of ``L_neg`` (Table 4).
        positive: ``L_pos``: ``soft_ce`` or ``mse`` to a client's own answers, or ``task``: its labels.
        negative: ``L_neg`` on ``logits`` or on ``probabilities``.
        distill_epochs: steps of distillation in each of ``rounds`` rounds.
        distill_lr: their learning rate.
        rounds: rounds of phase 4.
        departure: of a client request: the rounds with and without the leavers; by default chosen by whether their
            training loss is below half that of validation nodes.
        rewind: of a client request whose leavers are memorised: blend in a model rewound to an early round, which fit
            keeps with ``history.first_n 8``; without one it is left out. Given as true, always.
        rewind_to: that round.
        rewind_share: weight of the rewound model.
        counterfactual_epochs: of a meta request: epochs of training on from the server's model, once with and once
            without the data; their difference is what the data still do.
        never_saw_epochs: of a meta request: steps of distillation towards a teacher that never saw the data.
        never_saw_lr: their learning rate.
        seed: of probes and random models.
    """

    def __init__(
        self,
        preset: Preset = "plus",
        target: Target | None = None,
        retain: Retain | None = None,
        unlearn_epochs: int | None = None,
        unlearn_lr: float = 1e-3,
        basis: Literal["gram_schmidt", "principal"] | None = None,
        energy: float | None = None,
        max_rank: int | None = None,
        basis_source: Literal["all_others", "influenced"] = "all_others",
        influence: InfluenceRule | None = None,
        graph: Literal["adversarial", "random", "none"] | None = None,
        graph_nodes: int = 100,
        graph_steps: int = 200,
        graph_lr: float = 0.01,
        features: Features | None = None,
        epsilon: float = 0.1,
        relative_epsilon: bool | None = None,
        penalty: float = 0.1,
        flips: int = 5,
        divergence: Divergence | None = None,
        literal_graph: bool | None = None,
        alpha: float | None = None,
        positive: Positive | None = None,
        negative: Negative = "logits",
        distill_epochs: int | None = None,
        distill_lr: float | None = None,
        rounds: int | None = None,
        departure: Departure | None = None,
        rewind: bool | None = None,
        rewind_to: int = 5,
        rewind_share: float = 0.5,
        counterfactual_epochs: int | None = None,
        never_saw_epochs: int | None = None,
        never_saw_lr: float = 3e-3,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.preset, self.target, self.retain = preset, target, retain
        self.unlearn_epochs, self.unlearn_lr = unlearn_epochs, unlearn_lr
        self.basis, self.energy, self.max_rank, self.basis_source = basis, energy, max_rank, basis_source
        self.influence, self.graph = influence, graph
        self.graph_nodes, self.graph_steps, self.graph_lr = graph_nodes, graph_steps, graph_lr
        self.features, self.epsilon, self.relative_epsilon = features, epsilon, relative_epsilon
        self.penalty, self.flips, self.divergence, self.literal_graph = penalty, flips, divergence, literal_graph
        self.alpha, self.positive, self.negative = alpha, positive, negative
        self.distill_epochs, self.distill_lr, self.rounds, self.seed = distill_epochs, distill_lr, rounds, seed
        self.departure, self.rewind, self.rewind_to, self.rewind_share = departure, rewind, rewind_to, rewind_share
        self.counterfactual_epochs = counterfactual_epochs
        self.never_saw_epochs, self.never_saw_lr = never_saw_epochs, never_saw_lr

    def option(self, name: str) -> Any:  # noqa: ANN401
        """An option as given, or as the preset sets it."""
        given = getattr(self, name)
        return PRESETS[self.preset][name] if given is None else given

    @property
    @override
    def row_name(self) -> str:
        return f"page_{self.preset}"

    @property
    @override
    def influenced(self) -> dict[str, Any] | None:
        if self._selection is None:
            return None
        _, similarity, chosen = self._selection
        return {
            "clients": [int(slot) for slot in chosen.any(0).nonzero().squeeze(1)],
            "similarities": {
                str(slot): [None if value != value else value for value in row]
                for slot, row in zip(self.forgetting, similarity.tolist(), strict=True)
            },
        }

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        self.follows = False
        self._take_over(federation, clients, retained, request)
        if not request.clients or not self.option("rewind") or self._kept_rounds():
            return
        if self.rewind:
            message = "PAGE rewinds to an early round, but fit kept none: train again with --history.first_n 8"
            raise ConfigurationError(message)
        if self._memorised:
            warnings.warn(
                "PAGE leaves out the rewound model, for fit kept no early rounds; forgetting is better with those that "
                "--history.first_n 8 keeps",
                stacklevel=2,
            )

    def prepare_to_follow(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        """Prepare for :meth:`last_phases` alone, after another method has changed :attr:`federation`.

        Raises:
            ConfigurationError: there are to be no probes.
        """
        if self.option("graph") == "none":
            message = "method.page.graph is none: influenced clients then learn nothing"
            raise ConfigurationError(message)
        self.follows = True
        self._take_over(federation, clients, retained, request)

    def _take_over(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.forgetting = list(request.touched)
        self.departing = [slot for slot in self.forgetting if slot in request.clients]
        self._selection: tuple[Prototypes, Tensor, Tensor] | None = None
        self._probes: tuple[Tensor, Tensor, Tensor] | None = None
        self._difference: Tensors | None = None
        self._twins: CounterfactualRounds | None = None
        self._resumed_twins: list[dict[str, Any]] | None = None
        self._moved: dict[str, Tensors] | None = None
        self._memorised = self._is_memorised()

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        if request.is_empty:
            return []
        phases = [Phase("prototypes", 1)]
        if self._departs:
            phases.append(Phase("counterfactual_rounds", self._schedule.rounds))
        if self._rewinds:
            phases += [Phase("rewind", 1), *self._influenced_phases]
        if self._is_meta:
            phases += [Phase(name, 1) for name, epochs in _META_PHASES.items() if self.option(epochs)]
        complete = self._departs or self._rewinds  # phases 3 and 4 were measured to add nothing there
        if self._is_meta:
            complete = complete or bool(self.option("never_saw_epochs")) or self.option("graph") == "none"
        return phases if complete else phases + self._influenced_phases

    def last_phases(self, request: UnlearningRequest) -> list[Phase]:
        """The phases on influenced clients, which may follow any method."""
        return [] if request.is_empty else [Phase("prototypes", 1), *self._influenced_phases]

    @property
    def _influenced_phases(self) -> list[Phase]:
        probes = [] if self.option("graph") == "none" else [Phase("adversarial_graphs", 1)]
        return [*probes, Phase("distillation", self.option("rounds"))]

    @property
    def _is_meta(self) -> bool:
        """Whether some client forgets and stays."""
        return set(self.request.touched) != set(self.request.clients)

    @property
    def _departs(self) -> bool:
        """Whether all models move along what leavers did."""
        return bool(self.departing) and bool(self.option("counterfactual_epochs")) and not self.follows

    @property
    def _rewinds(self) -> bool:
        if not self.departing or self.follows or not self.option("rewind") or not self._kept_rounds():
            return False
        return self._memorised or bool(self.rewind)

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        if phase.name == "distillation":
            return self._distil(step)
        if phase.name == "counterfactual_rounds":
            return self._train_with_and_without_leavers(step)
        runs = {
            "prototypes": self._exchange_prototypes,
            "rewind": self._go_back,
            "counterfactual": self._train_both_ways,
            "never_saw": self._learn_from_never_saw,
            "local_unlearning": self._unlearn_locally,
            "adversarial_graphs": self._make_probes,
        }
        return runs[phase.name]()

    # -- 1: prototypes -------------------------------------------------------------------------------------------------

    def selection(self) -> tuple[Prototypes, Tensor, Tensor]:
        """All clients' prototypes, similarities ``[U, K]``, and who is influenced by whom, bool ``[U, K]``."""
        if self._selection is None:
            asking, others = self._asking, self._class_prototypes()
            rule: InfluenceRule = self.option("influence")
            similarity = prototype_similarity(asking, others, center=rule.center)
            candidates = torch.tensor([bool(size) for size in self.retained.sizes], device=similarity.device)
            candidates = candidates.repeat(len(self.forgetting), 1)
            candidates[range(len(self.forgetting)), self.forgetting] = False
            self._selection = others, similarity, rule.choose(similarity, candidates)
        return self._selection

    @torch.no_grad()
    def _class_prototypes(self) -> Prototypes:
        """Every client's prototypes of its retained training nodes, under the original local models."""
        flow = self.retained.flow(self.original.server.num_hops, self.original.dtype, "train")
        embedding, _ = self.original.run_clients(flow)
        nodes = flow.target_index
        return class_prototypes(
            embedding,
            self.retained.y[nodes],
            self.retained.client[nodes],
            self.retained.num_clients,
            self.retained.num_classes,
        )

    @property
    @torch.no_grad()
    def _asking(self) -> Prototypes:
        """Prototypes of what is forgotten, for each client that forgets (Eq. 6)."""
        flow = self._forgotten_flow(self.clients)
        embedding, _ = self.original.run_clients(flow)
        nodes = flow.target_index
        found = class_prototypes(
            embedding,
            self.clients.y[nodes],
            self.clients.client[nodes],
            self.clients.num_clients,
            self.clients.num_classes,
        )
        return Prototypes(found.mean[self.forgetting], found.count[self.forgetting])

    def _forgotten_mask(self, graphs: ClientGraphs) -> Tensor:
        mask = torch.zeros(graphs.num_nodes, dtype=torch.bool, device=graphs.device)
        mask[forgotten_nodes(graphs, self.request)] = True
        return mask

    def _forgotten_flow(self, graphs: ClientGraphs) -> SparseFlow:
        return graphs.flow_at(self._forgotten_mask(graphs), self.original.server.num_hops, self.original.dtype)

    def _exchange_prototypes(self) -> dict[str, Tensor]:
        others, similarity, chosen = self.selection()
        staying = self._retained_slots
        one = {"mean": others.mean[0], "count": others.count[0]}
        self.channel.send(Message.of("prototypes", "up", staying, one, lambda: vars(others)), 0)
        self.channel.send(Message.of("request_prototypes", "up", self.forgetting, one, lambda: vars(self._asking)), 0)
        local = self._staying
        if local and self.option("unlearn_epochs") and not self.follows:
            self.channel.send(Message.of("basis", "down", local, {"basis": others.mean[0]}, lambda: vars(others)), 0)
        return {"influenced": chosen.any(0).sum().to(similarity.dtype)}

    def _basis(self, slot: int) -> Tensor:
        """Orthonormal basis of the other clients' prototypes, ``[d, r]``."""
        others, _, chosen = self.selection()
        source = torch.ones(len(others.mean), dtype=torch.bool, device=others.mean.device)
        if self.basis_source == "influenced":
            source = chosen[self.forgetting.index(slot)].clone()
        source[slot] = False
        vectors = others.mean[source][others.present[source]]
        if self.option("basis") == "gram_schmidt":
            return gram_schmidt(vectors)
        return principal_basis(vectors, self.option("energy"), self.max_rank)

    # -- rewinding and the never-saw teacher ---------------------------------------------------------------------------

    @override
    def needs_for(self, request: UnlearningRequest) -> frozenset[Need]:
        needs = {Need.LEAVER_ONLINE} if request.clients else set()  # a leaver makes its own probe, or trains once more
        if self.rewind and request.clients:
            needs.add(Need.HISTORY)
        if self.option("never_saw_epochs") and set(request.touched) != set(request.clients):
            needs.add(Need.VALIDATION_NODES)
        return frozenset(needs)

    @torch.no_grad()
    def _is_memorised(self) -> bool:
        """Whether the server's model fits the leavers' training nodes far better than validation nodes."""
        if not self.departing:
            return False
        graphs = self.clients
        leaver = torch.zeros(graphs.num_clients, dtype=torch.bool, device=graphs.device)
        leaver[self.departing] = True
        seen, unseen = graphs.masks["train"] & leaver[graphs.client], graphs.masks["val"]
        flow = graphs.flow_at(seen | unseen, self.original.server.num_hops, self.original.dtype)
        rows = flow.target_index
        loss = F.cross_entropy(self.original.run_server(flow)[1], graphs.y[rows], reduction="none")
        return bool(loss[seen[rows]].mean() < loss[unseen[rows]].mean() / 2)

    @property
    def _schedule(self) -> Departure:
        return self.departure or (MEMORISED if self._memorised else LEARNED)

    def _train_with_and_without_leavers(self, step: int) -> dict[str, Tensor]:
        """A round of all clients and one of those that stay; after the last one all models move."""
        schedule, stay = self._schedule, [slot for slot, size in enumerate(self.clients.sizes) if size]
        if self._twins is None:
            staying = self.retained
            if self._is_meta:  # what others forget, they forget afterwards
                leave = replace(self.request, nodes={}, edges={}, features={})
                staying = apply_request(self.clients, leave).to(self.clients.device)
            self._twins = CounterfactualRounds(self.original, staying, self.clients, schedule.epochs, self.channel)
            if self._resumed_twins is not None:
                self._twins.load(self._resumed_twins)
                self._resumed_twins = None
        loss = self._twins.run(self.original.trained_rounds + step)
        self.local_epochs += schedule.epochs * (2 * len(stay) - len(self.departing))
        if step + 1 == schedule.rounds:
            server, clients = self._twins.difference()
            self._twins = None
            held, local = (self.original.server_state(), self.original.client_state()), self._retained_slots
            move = _expand({name: schedule.scale * change for name, change in server.items()}, len(local))
            bearable = self._bearable(local, _expand(held[0], len(local)), move, _CLIENT_TOLERANCE, schedule.rounds)
            scale = schedule.scale * bearable
            self.federation.set_server({n: held[0][n] + scale * change for n, change in server.items()})
            moved = {n: held[1][n] + scale * change for n, change in clients.items()}
            self.federation.put(range(self.federation.num_clients), moved)
            if self._rewinds:
                self._moved = {"server": _copy(self.federation.server_state()), "clients": moved}
        return {"loss": loss}

    def _kept_rounds(self) -> list[int]:
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
        self.federation.set_server(_weighted_mean(models, weights))
        return {}

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

    @property
    def _retained_slots(self) -> list[int]:
        """Clients that still hold nodes."""
        return [slot for slot, size in enumerate(self.retained.sizes) if size]

    @property
    def _staying(self) -> list[int]:
        """Clients that forget and stay."""
        return [slot for slot in self.forgetting if slot not in self.departing]

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
            self._average(1)
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
        chosen = self._forgotten_mask(asked)
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
            self._forgotten_mask(asked),
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
        self._average(2)
        return dict(stage.reported)

    # -- 2: local unlearning -------------------------------------------------------------------------------------------

    def _unlearn_locally(self) -> dict[str, Tensor]:
        local = self._staying
        graphs = self.clients.select(local)
        stage = PrototypeUnlearning(
            self.federation.server,
            self.federation.client_state(local),
            graphs,
            self._forgotten_mask(graphs),
            [self._basis(slot) for slot in local],
            self.option("target"),
            retain=self.option("retain"),
            retained=self.retained.select(local),
            lr=self.unlearn_lr,
        )
        epochs = self.option("unlearn_epochs")
        run_stage(stage, epochs)
        self.local_epochs += epochs * len(local)
        self.federation.put(local, stage.stack.canonical())
        self._average(1)
        return {"loss": stage.reported["loss"]}

    # -- 3: adversarial graphs -----------------------------------------------------------------------------------------

    def _pairs(self) -> tuple[Tensors, Tensors]:
        """Original and unlearned model of every client that forgets, ``[U, ...]``."""
        before = self.original.client_state(self.forgetting)
        after = self.federation.client_state(self.forgetting)
        if self.departing:
            if self._rewinds or self.follows:
                unlearned = self.federation.averaged_state()
            else:
                noise = self.federation.fresh(_reseeded(self.federation, self.seed))
                unlearned = noise.averaged_state()
            for place, slot in enumerate(self.forgetting):
                if slot in self.departing:
                    for name, tensor in unlearned.items():
                        after[name][place] = tensor
        return before, after

    def _make_probes(self) -> dict[str, Tensor]:
        before, after = self._pairs()
        x, adjacency, deviation = self._initial_graphs()
        shown = torch.zeros((), dtype=x.dtype, device=x.device)
        if self.option("graph") == "adversarial":
            epsilon = self.epsilon * deviation.unsqueeze(1) if self.option("relative_epsilon") else self.epsilon
            generator = AdversarialGraphGenerator(
                self.federation.server,
                before,
                after,
                x,
                adjacency,
                epsilon,
                self.penalty,
                self.flips,
                self.option("divergence"),
                self.option("literal_graph"),
                self.graph_lr,
            )
            attack(generator, self.graph_steps)
            x, adjacency = generator.graphs()
            shown = generator.reported["disagreement"]
        with torch.no_grad():
            flow = DenseFlow(x, adjacency, self.federation.server.num_hops)
            answers = functional_call(self.federation.server, after, (flow,))[1].view(*x.shape[:2], -1)
        self._probes = x, adjacency, answers
        probe = {"x": x, "adjacency": adjacency.to(torch.uint8), "answers": answers}
        one = {name: tensor[0] for name, tensor in probe.items()}
        self.channel.send(Message.of("adversarial_graph", "up", self.forgetting, one, lambda: probe), 1)
        reached = [int(slot) for slot in self.selection()[2].any(0).nonzero().squeeze(1)]
        self.channel.send(Message.of("adversarial_graph", "down", reached, one, lambda: probe), 1)
        return {"disagreement": shown}

    def _initial_graphs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Starting features ``[U, N, F]``, adjacency ``[U, N, N]`` and each client's feature deviations ``[U, F]``."""
        graphs = self.clients.select(self.forgetting)
        dense = graphs.x.to_dense().to(self.federation.dtype)
        blocks = torch.split(dense, list(graphs.sizes))
        mean = torch.stack([block.mean(0) for block in blocks])
        deviation = torch.stack([block.std(0, correction=0) for block in blocks])
        binary = bool(((dense == 0) | (dense == 1)).all())
        degree = torch.bincount(graphs.client[graphs.edge_index[0]], minlength=graphs.num_clients)
        degree = degree.to(dense.dtype) / torch.tensor(graphs.sizes, dtype=dense.dtype, device=dense.device)
        draws = torch.Generator(dense.device).manual_seed(stream_key(self.seed, 1) >> 1)
        kind = self.option("features")
        if kind == "marginal":
            chosen = None if binary else deviation
            x, adjacency = random_graphs(len(blocks), self.graph_nodes, mean, degree, draws, chosen)
        else:
            zero, one = torch.zeros_like(mean), torch.ones_like(mean)
            x, adjacency = random_graphs(len(blocks), self.graph_nodes, zero, degree, draws, one)
            if kind == "uniform":
                x = torch.rand(x.shape, generator=draws, device=x.device, dtype=x.dtype)
        return x, adjacency, deviation

    # -- 4: distillation -----------------------------------------------------------------------------------------------

    def _distil(self, step: int) -> dict[str, Tensor]:
        chosen = self.selection()[2]
        students = [int(slot) for slot in chosen.any(0).nonzero().squeeze(1)]
        figures: dict[str, Tensor] = {}
        if students and (self._probes is not None or self._rewinds):
            x, adjacency, answers = self._no_probes if self._probes is None else self._probes
            own = self.original if self._rewinds else self.federation
            stage = NegativeDistillation(
                self.federation.server,
                own.client_state(students),
                self.retained.select(students),
                x,
                adjacency,
                answers,
                chosen[: len(x), students].T,
                self.option("alpha"),
                self.option("positive"),
                self.negative,
                self.option("distill_lr"),
            )
            if self._rewinds:  # teachers of what to keep are the original models, students start rewound
                stage.stack.broadcast(self.federation.server_state())
            epochs = self.option("distill_epochs")
            run_stage(stage, epochs)
            self.local_epochs += epochs * len(students)
            self.federation.put(students, stage.stack.canonical())
            figures = {name: value for name, value in stage.reported.items() if name.startswith("loss")}
        self._average(2 + step)
        if self._rewinds and step + 1 == self.option("rounds"):
            self._blend_with_rewound()
        return figures

    @property
    def _no_probes(self) -> tuple[Tensor, Tensor, Tensor]:
        empty = torch.zeros(0, 1, 1, dtype=self.federation.dtype, device=self.retained.device)
        return empty, empty, empty

    def _average(self, number: int) -> None:
        """The server averages the clients that stay (weights of the retained graphs)."""
        staying = self._retained_slots
        server = self.federation.server_state()
        models = self.federation.client_state()
        self.channel.send(
            Message.of_model("up", staying, server, lambda: self.federation.client_state(staying)), number
        )
        weights = client_weights(self.retained, self.federation.recipe.weighting, staying)
        self.federation.set_server(_weighted_mean(models, weights))

    @override
    def method_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {} if self._probes is None else {"probes": list(self._probes)}
        if self._difference is not None:
            state["difference"] = self._difference
        if self._twins is not None:
            state["twins"] = self._twins.state()
        if self._moved is not None:
            state["moved"] = self._moved
        return state

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        if "probes" in state:
            x, adjacency, answers = state["probes"]
            self._probes = x, adjacency, answers
        self._difference = state.get("difference")
        self._resumed_twins = state.get("twins")
        self._moved = state.get("moved")


def _expand(tensors: Tensors, count: int) -> Tensors:
    return {name: tensor.expand(count, *tensor.shape) for name, tensor in tensors.items()}


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _weighted_mean(models: Tensors, weights: Tensor) -> Tensors:
    return {
        name: torch.tensordot(weights.to(tensor), tensor, 1)
        for name, tensor in models.items()
        if tensor.is_floating_point()
    }


def _reseeded(federation: Federation, seed: int) -> Recipe:
    return replace(federation.recipe, seed=stream_key(federation.recipe.seed, seed, 7) >> 1)
