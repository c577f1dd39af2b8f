"""PAGE's four phases on a federation: prototypes, local unlearning, adversarial graphs, distillation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call
from typing_extensions import override

from page_lightning.data.apply_request import forgotten_mask
from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.dense import DenseFlow
from page_lightning.federation.federation import Federation
from page_lightning.federation.flow import SparseFlow
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Message
from page_lightning.federation.randomness import stream_key
from page_lightning.federation.stack import Tensors
from page_lightning.influence import InfluenceRule, prototype_similarity
from page_lightning.methods.base import UnlearningMethod
from page_lightning.modules.adversarial_graphs import AdversarialGraphGenerator, attack, random_graphs
from page_lightning.modules.negative_distillation import Negative, NegativeDistillation
from page_lightning.modules.prototype_unlearning import PrototypeUnlearning
from page_lightning.modules.stage import run_stage
from page_lightning.prototypes import Prototypes, class_prototypes, gram_schmidt, principal_basis


class PagePhases(UnlearningMethod, ABC):
    """What PAGE's phases do in a round; :class:`~page_lightning.methods.PAGE` documents the options."""

    unlearn_lr: float
    max_rank: int | None
    basis_source: Literal["all_others", "influenced"]
    graph_nodes: int
    graph_steps: int
    graph_lr: float
    epsilon: float
    penalty: float
    flips: int
    negative: Negative
    seed: int
    follows: bool
    """Whether another method has unlearned before."""

    @abstractmethod
    def option(self, name: str) -> Any:  # noqa: ANN401
        """An option as given, or as the preset sets it."""

    @property
    def rewinds(self) -> bool:
        """Whether students start from the server's model, rewound, and not from their own."""
        return False

    def take_over(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        """What every run needs."""
        super().prepare(federation, clients, retained, request)
        self.forgetting = list(request.touched)
        self.departing = [slot for slot in self.forgetting if slot in request.clients]
        self._selection: tuple[Prototypes, Tensor, Tensor] | None = None
        self._probes: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def _staying(self) -> list[int]:
        """Clients that forget and stay."""
        return [slot for slot in self.forgetting if slot not in self.departing]

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

    def _forgotten_flow(self, graphs: ClientGraphs) -> SparseFlow:
        return graphs.flow_at(forgotten_mask(graphs, self.request), self.original.server.num_hops, self.original.dtype)

    def _exchange_prototypes(self) -> dict[str, Tensor]:
        others, similarity, chosen = self.selection()
        staying = self.staying
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

    # -- 2: local unlearning -------------------------------------------------------------------------------------------

    def _unlearn_locally(self) -> dict[str, Tensor]:
        local = self._staying
        graphs = self.clients.select(local)
        stage = PrototypeUnlearning(
            self.federation.server,
            self.federation.client_state(local),
            graphs,
            forgotten_mask(graphs, self.request),
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
        self.average(1)
        return {"loss": stage.reported["loss"]}

    # -- 3: adversarial graphs -----------------------------------------------------------------------------------------

    def _pairs(self) -> tuple[Tensors, Tensors]:
        """Original and unlearned model of every client that forgets, ``[U, ...]``."""
        before = self.original.client_state(self.forgetting)
        after = self.federation.client_state(self.forgetting)
        if self.departing:
            if self.rewinds or self.follows:
                unlearned = self.federation.averaged_state()
            else:
                unlearned = self.federation.random(self.seed).averaged_state()
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
        if students and (self._probes is not None or self.rewinds):
            x, adjacency, answers = self._no_probes if self._probes is None else self._probes
            own = self.original if self.rewinds else self.federation
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
            if self.rewinds:  # teachers of what to keep are the original models, students start rewound
                stage.stack.broadcast(self.federation.server_state())
            epochs = self.option("distill_epochs")
            run_stage(stage, epochs)
            self.local_epochs += epochs * len(students)
            self.federation.put(students, stage.stack.canonical())
            figures = {name: value for name, value in stage.reported.items() if name.startswith("loss")}
        self.average(2 + step)
        return figures

    @property
    def _no_probes(self) -> tuple[Tensor, Tensor, Tensor]:
        empty = torch.zeros(0, 1, 1, dtype=self.federation.dtype, device=self.retained.device)
        return empty, empty, empty

    @override
    def method_state(self) -> dict[str, Any]:
        return {} if self._probes is None else {"probes": list(self._probes)}

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        if "probes" in state:
            x, adjacency, answers = state["probes"]
            self._probes = x, adjacency, answers
