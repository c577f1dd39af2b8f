"""GIF: graph influence functions (Wu et al., WWW 2023)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.curvature import ClientLoss, Solution, conjugate_gradient, largest_eigenvalue, lissa
from page_lightning.data.affected_nodes import affected_nodes
from page_lightning.data.requests import RequestKind, UnlearningRequest
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Message
from page_lightning.methods.base import Phase
from page_lightning.methods.federated import FederatedAveragingMethod

_NO_OP = 1e-6


class GIF(FederatedAveragingMethod):
    """One Newton step from the trained model towards the optimum without the data.

    The right-hand side is the gradient of all training nodes whose output the request changes, on the graphs before it,
    minus their gradient on the graphs after it; the step is the inverse Hessian times that. All clients are solved at
    once. A step that is not finite is left out, with a warning; so is one that changes nothing.

    Args:
        protocol: ``local``: the clients that forget take the step (P0); ``average``: then the server averages once
            (P1); ``recover``: then all train ``rounds`` rounds (P2); ``server``: one step of the server's model with
            the Hessians of all clients summed, a message both ways for every product (P3).
        rounds: of ``recover``.
        hessian: of the loss on the ``new`` graphs, which is far more exact, or on the ``old`` ones, as released.
        solver: ``cg`` or ``lissa``.
        iterations: Hessian-vector products of the solver at most; 50 for cg, 100 for lissa by default.
        damping: added to the Hessian; by default a hundredth of its largest eigenvalue, or only the training's own
            ridge where the loss is convex (SGC).
        scale: of lissa; by default 1.1 times the largest eigenvalue and the damping.
    """

    supports: ClassVar[frozenset[RequestKind]] = frozenset({"node", "edge", "feature"})

    def __init__(
        self,
        protocol: Literal["local", "average", "recover", "server"] = "average",
        rounds: int = 3,
        hessian: Literal["new", "old"] = "new",
        solver: Literal["cg", "lissa"] = "cg",
        iterations: int | None = None,
        damping: float | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.protocol, self.rounds, self.hessian, self.solver = protocol, rounds, hessian, solver
        self.iterations, self.damping, self.scale = iterations, damping, scale
        self.check_range("rounds", "iterations", least=1)
        self.check_range("damping", least=0)
        self.check_range("scale", above=0)

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.first_round = federation.trained_rounds

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        if request.is_empty:
            return []
        recovery = [Phase("recovery", self.rounds)] if self.protocol == "recover" else []
        return [Phase("influence", 1), *recovery]

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        if phase.name == "recovery":
            return super().run_round(phase, step)
        return self._step_server() if self.protocol == "server" else self._step_clients()

    @property
    def _ridge(self) -> float:
        """Of a client's mean loss; a coupled weight decay is one."""
        recipe = self.federation.recipe
        coupled = recipe.optimizer.name.rpartition(".")[2] != "AdamW"
        return recipe.ridge + (recipe.optimizer.weight_decay if coupled else 0.0)

    def _step_clients(self) -> dict[str, Tensor]:
        federation, local = self.federation, list(self.request.touched)
        clients, retained = self.clients.select(local), self.retained.select(local)
        models, server = federation.client_state(local), federation.server
        affected = affected_nodes(clients, self.request, server.num_hops, degree_normalized=server.degree_normalized)
        left = torch.isin(retained.node_id, clients.node_id[affected])
        before, after = clients.count("train").double(), retained.count("train").double()
        ridge = self._ridge
        old = ClientLoss(server, models, clients, affected & clients.masks["train"], ridge=ridge * (before - after))
        new = ClientLoss(server, models, retained, left & retained.masks["train"])
        b = old.gradient() - new.gradient()
        graphs, count = (retained, after) if self.hessian == "new" else (clients, before)
        loss = ClientLoss(server, models, graphs, graphs.masks["train"], ridge=ridge * count)
        found = self._solve(loss.hessian_product, b)
        step = self._checked(found, loss.models(), local)
        moved = loss.split(loss.models() + step)
        federation.put(local, dict(zip(loss.names, moved, strict=True)))
        if self.protocol != "local":
            self.average(0)
        return self._figures(found, step, loss.models(), local)

    def _step_server(self) -> dict[str, Tensor]:
        federation, server = self.federation, self.federation.server
        slots = [slot for slot, count in enumerate(self.retained.count("train").tolist()) if count]
        clients, retained = self.clients.select(slots), self.retained.select(slots)
        state = federation.server_state()
        models = {n: t.expand(len(slots), *t.shape) for n, t in federation.averaged_state().items()}
        losses, one = [], {"vector": torch.zeros(sum(t.numel() for t in state.values()), dtype=torch.float64)}
        for graphs in (clients, retained):
            everyone = self.clients if graphs is clients else self.retained
            share = client_weights(everyone, federation.recipe.weighting, slots)[slots]
            weight = share / graphs.count("train").cpu()
            losses.append(ClientLoss(server, models, graphs, graphs.masks["train"], weight, ridge=self._ridge * share))
        old, new = losses
        gradients = old.gradient() - new.gradient()
        self.channel.send(Message.of("gradient", "up", slots, one, lambda: {"vector": gradients}), 0)
        loss = new if self.hessian == "new" else old

        def product(vector: Tensor) -> Tensor:
            self.channel.send(Message.of("vector", "down", slots, one, lambda: {"vector": vector[0]}), 0)
            images = loss.hessian_product(vector.expand(len(slots), -1))
            self.channel.send(Message.of("vector", "up", slots, one, lambda: {"vector": images}), 0)
            return images.sum(0, keepdim=True)

        found = self._solve(product, gradients.sum(0, keepdim=True))
        before = loss.models()[:1]
        step = self._checked(found, before, [0])
        moved = [part[0] for part in loss.split((before + step).expand(len(slots), -1))]
        federation.set_server(dict(zip(loss.names, moved, strict=True)))
        federation.put(self.staying, federation.server_state())
        return self._figures(found, step, before, ["server"])

    def _solve(self, product: Any, b: Tensor) -> Solution:  # noqa: ANN401 - a Product
        damping = torch.zeros(len(b), dtype=torch.float64, device=b.device)
        largest = damping
        linear = getattr(self.federation.server, "variant", None) == "linear"
        if (self.damping is None and not (linear and self._ridge)) or (self.solver == "lissa" and self.scale is None):
            largest = largest_eigenvalue(product, b)
        if self.damping is not None:
            damping = damping + self.damping
        elif not (linear and self._ridge):
            damping = 1e-2 * largest
        if self.solver == "cg":
            return conjugate_gradient(product, b, damping, self.iterations or 50)
        scale = 1.1 * (largest + damping) if self.scale is None else torch.full_like(damping, self.scale)
        return lissa(product, b, scale.clamp(min=1e-12), damping, self.iterations or 100)

    def _checked(self, found: Solution, models: Tensor, slots: list[int]) -> Tensor:
        """The step ``[U, P]``, zero where it is not finite."""
        finite = found.x.isfinite().all(1)
        diverged = [slot for slot, good in zip(slots, finite.tolist(), strict=True) if not good]
        if diverged:
            warnings.warn(f"GIF diverged on clients {diverged}, which stay as they are: raise damping", stacklevel=2)
        step = torch.where(finite.unsqueeze(1), found.x, 0.0)
        size = step.norm(dim=1) / models.norm(dim=1).clamp(min=1e-300)
        still = [
            slot for slot, s, good in zip(slots, size.tolist(), finite.tolist(), strict=True) if good and s < _NO_OP
        ]
        if still:
            warnings.warn(f"GIF changed nothing on clients {still} (step below {_NO_OP:g} of the model)", stacklevel=2)
        return step

    def _figures(self, found: Solution, step: Tensor, models: Tensor, who: list[Any]) -> dict[str, Tensor]:
        size = step.norm(dim=1) / models.norm(dim=1).clamp(min=1e-300)
        figures = {"residual": found.residual.max(), "step_norm": size.mean(), "damping": found.damping.max()}
        for place, name in enumerate(who):
            figures[f"client_{name}/residual"] = found.residual[place]
            figures[f"client_{name}/step_norm"] = size[place]
        return figures
