"""PAGE: prototype-guided local unlearning and negative distillation on adversarial graphs (arXiv 2508.02485)."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from torch import Tensor
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.backbones.pyg_module import PyGModule
from page_lightning.data.requests import UnlearningRequest
from page_lightning.errors import ConfigurationError
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.influence import InfluenceRule
from page_lightning.methods.base import Need, Phase
from page_lightning.methods.page_plus import PlusPhases
from page_lightning.methods.page_presets import PRESETS, CounterfactualSchedule, Features, Preset
from page_lightning.modules.adversarial_graphs import Divergence
from page_lightning.modules.negative_distillation import Negative, Positive
from page_lightning.modules.prototype_unlearning import Retain, Target

_META_PHASES = {
    "counterfactual": "counterfactual_epochs",
    "never_saw": "never_saw_epochs",
    "local_unlearning": "unlearn_epochs",
}
"""Phases of clients that forget and stay, and the option without which each is left out."""
_FINE_TUNING = 3
"""Rounds where training has not settled: with the counterfactual round before them, a tenth of 50 rounds."""


class PAGE(PlusPhases):
    """PAGE. A meta request (nodes, edges, features) takes four phases, a client request the last two.

    1. ``prototypes``: every client sends its class prototypes; the server chooses the influenced clients.
    2. ``local_unlearning``: the clients that forget move their forgotten prototypes.
    3. ``adversarial_graphs``: a graph on which each one's original and unlearned model disagree. For a client that
       leaves, the unlearned model is a fresh random one.
    4. ``distillation``: influenced clients learn the unlearned model's answers there, and keep their own elsewhere;
       then the server averages.

    A preset sets every option that is not given. ``plus`` has phases of its own, before or in place of these:

    - ``counterfactual_rounds``: all clients train on with and without the data: the difference is what the data still
      do, and every model moves along it, as far as validation nodes bear it. What is not memorised needs no more; where
      validation nodes bear no step, training has not settled, and ``fine_tune`` trains on without the data instead.
    - Memorised labels of a meta request: in its place ``counterfactual`` (the same on each client that forgets) and
      ``never_saw`` (distil the forgotten nodes towards models that never saw them).
    - Memorised labels of clients that leave: also ``rewind`` (back to the retained clients' mean of an early round) and
      ``distillation`` (that model learns the clients' own answers); the result is the mean of the two models.

    Memorised means that the training loss of what is forgotten is below half that of validation nodes.

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
        schedule: of the rounds with and without the data; by default chosen by what is forgotten.
        rewind: of a client request whose leavers are memorised: blend in a model rewound to an early round, which fit
            keeps with ``history.first_n 8``; without one it is left out. Given as true, always.
        rewind_to: that round.
        rewind_share: weight of the rewound model.
        counterfactual_epochs: of a memorised meta request: epochs of training on from the server's model, once with and
            once without the data; 0 leaves out the rounds with and without them, too.
        never_saw_epochs: of a memorised meta request: steps of distillation towards a teacher that never saw the data.
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
        schedule: CounterfactualSchedule | None = None,
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
        self.schedule, self.rewind, self.rewind_to, self.rewind_share = schedule, rewind, rewind_to, rewind_share
        self.counterfactual_epochs = counterfactual_epochs
        self.never_saw_epochs, self.never_saw_lr = never_saw_epochs, never_saw_lr
        self.check_range("unlearn_epochs", "graph_steps", "flips", "distill_epochs", least=0)
        self.check_range("counterfactual_epochs", "never_saw_epochs", "penalty", "epsilon", "alpha", least=0)
        self.check_range("graph_nodes", "max_rank", "rounds", "rewind_to", least=1)
        self.check_range("unlearn_lr", "graph_lr", "distill_lr", "never_saw_lr", above=0)
        self.check_range("rewind_share", least=0, most=1)
        self.check_range("energy", above=0, most=1)

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
    def check_backbone(self, backbone: Backbone, request: UnlearningRequest) -> None:
        is_meta = set(request.touched) != set(request.clients)
        inner = backbone.num_layers > 1 or getattr(backbone, "variant", "") == "linear"
        if is_meta and self.option("unlearn_epochs") and not inner:
            message = "PAGE moves prototypes of a hidden layer: raise model.backbone.num_layers above 1"
            raise ConfigurationError(message)
        if self.option("graph") != "none":
            self.check_probes(backbone)

    def check_probes(self, backbone: Backbone) -> None:
        """Refuse modules that know edge lists only: probes have a dense adjacency.

        Raises:
            ConfigurationError: the backbone is one of them.
        """
        if isinstance(backbone, PyGModule):
            message = "PAGE's probes need a stacked model.backbone (GCN, GAT, GraphSAGE, SGC, GIN, MLP); or graph none"
            raise ConfigurationError(message)

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        self.follows = False
        self.take_over(federation, clients, retained, request)
        if not request.clients or not self.option("rewind") or self.kept_rounds():
            return
        if self.rewind:
            message = "PAGE rewinds to an early round, but fit kept none: train again with --history.first_n 8"
            raise ConfigurationError(message)
        if self.memorised:
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
        self.take_over(federation, clients, retained, request)

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        if request.is_empty:
            return []
        phases = [Phase("prototypes", 1)]
        if self.trains_apart:
            phases.append(Phase("counterfactual_rounds", self._schedule.rounds))
            phases += [] if self.memorised else [Phase("fine_tune", _FINE_TUNING)]
        if self.rewinds:
            phases += [Phase("rewind", 1), *self._influenced_phases]
        if self.forgets_on:
            phases += [Phase(name, 1) for name, epochs in _META_PHASES.items() if self.option(epochs)]
        complete = self.trains_apart or self.rewinds  # phases 3 and 4 were measured to add nothing there
        if self.forgets_on:
            complete = complete or bool(self.option("never_saw_epochs")) or self.option("graph") == "none"
        return phases if complete else phases + self._influenced_phases

    def last_phases(self, request: UnlearningRequest) -> list[Phase]:
        """The phases on influenced clients, which may follow any method."""
        return [] if request.is_empty else [Phase("prototypes", 1), *self._influenced_phases]

    @property
    def _influenced_phases(self) -> list[Phase]:
        probes = [] if self.option("graph") == "none" else [Phase("adversarial_graphs", 1)]
        return [*probes, Phase("distillation", self.option("rounds"))]

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        if phase.name == "distillation":
            return self._distil(step)
        if phase.name == "counterfactual_rounds":
            return self._train_with_and_without(step)
        if phase.name == "fine_tune":
            return self._fine_tune(step)
        runs = {
            "prototypes": self._exchange_prototypes,
            "rewind": self._go_back,
            "counterfactual": self._train_both_ways,
            "never_saw": self._learn_from_never_saw,
            "local_unlearning": self._unlearn_locally,
            "adversarial_graphs": self._make_probes,
        }
        return runs[phase.name]()

    @override
    def needs_for(self, request: UnlearningRequest) -> frozenset[Need]:
        needs = {Need.LEAVER_ONLINE} if request.clients else set()  # a leaver makes its own probe, or trains once more
        if self.rewind and request.clients:
            needs.add(Need.HISTORY)
        if self.option("counterfactual_epochs") or self.option("never_saw_epochs"):  # they bound every step
            needs.add(Need.VALIDATION_NODES)
        return frozenset(needs)
