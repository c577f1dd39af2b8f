"""The state of a federation: the server's model and every client's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from page_lightning.backbones.base import Backbone
from page_lightning.configuration import build_class, class_config
from page_lightning.federation.flow import Flow
from page_lightning.federation.processes import sum_over_processes
from page_lightning.federation.randomness import stream_key
from page_lightning.federation.recipe import Recipe
from page_lightning.federation.stack import ClientStack, Tensors

if TYPE_CHECKING:
    from page_lightning.federation.history import History


class Federation(nn.Module):
    """A server model and ``K`` client models.

    The server's parameters are ordinary parameters; the clients' models are buffers ``[K, ...]`` under ``clients``.
    Training works on a :class:`ClientStack`; the buffers are brought up to date by :meth:`gather`, which any reading of
    the state dict does by itself.

    Args:
        backbone: a built backbone, whose parameters start every model.
        num_clients: ``K``.
        recipe: how it is trained.

    Attributes:
        trained_rounds: rounds of training behind the models.
        owned: slots that this process trains; all of them unless several processes run.
        history: client models of earlier rounds, where training kept them.
    """

    num_features: int
    num_classes: int

    def __init__(self, backbone: Backbone, num_clients: int, recipe: Recipe | None = None) -> None:
        super().__init__()
        self.server = backbone
        self.num_clients, self.recipe, self.trained_rounds = num_clients, recipe or Recipe(), 0
        models = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
        self.clients = _TensorTree(
            {name: t.detach().expand(num_clients, *t.shape).clone() for name, t in models.items()}
        )
        self._pending: tuple[ClientStack, tuple[int, ...]] | None = None
        self._stale_elsewhere = False
        self.history: History | None = None
        self.owned: Sequence[int] = range(num_clients)
        self.register_state_dict_pre_hook(lambda module, *_: module.gather())

    @classmethod
    def create(
        cls,
        backbone: Backbone,
        num_features: int,
        num_classes: int,
        num_clients: int,
        recipe: Recipe,
        dtype: torch.dtype | None = None,
    ) -> Federation:
        """Initial models, drawn from the recipe's seed alone.

        Args:
            backbone: the architecture; it is copied, and may be built or not.
            num_features: ``F``.
            num_classes: ``C``.
            num_clients: ``K``.
            recipe: how the federation will be trained.
            dtype: of the parameters; by default PyTorch's default.
        """
        fresh: Backbone = build_class(class_config(backbone))
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype or before)
        try:
            with torch.random.fork_rng([]):
                torch.manual_seed(stream_key(recipe.seed) >> 1)
                fresh.build(num_features, num_classes)
        finally:
            torch.set_default_dtype(before)
        federation = cls(fresh, num_clients, recipe)
        federation.num_features, federation.num_classes = num_features, num_classes
        return federation

    def fresh(self, recipe: Recipe | None = None) -> Federation:
        """An untrained federation of the same kind: the same initial models, or those of another recipe's seed."""
        other = Federation.create(
            self.server, self.num_features, self.num_classes, self.num_clients, recipe or self.recipe, self.dtype
        )
        other.owned = self.owned
        return other.to(next(self.server.parameters()).device)

    def random(self, seed: int) -> Federation:
        """An untrained federation of the same kind from models that training never started from."""
        return self.fresh(replace(self.recipe, seed=stream_key(self.recipe.seed, seed, 7) >> 1))

    def clone(self) -> Federation:
        """A copy that shares nothing with this one."""
        other = self.fresh()
        other.load_state_dict(self.state_dict())
        other.trained_rounds, other.history = self.trained_rounds, self.history
        return other

    def server_state(self) -> Tensors:
        """The server's parameters by name."""
        return {name: p.detach() for name, p in self.server.named_parameters()}

    def averaged_state(self) -> Tensors:
        """What the server averages: its parameters and its floating-point buffers."""
        buffers = {name: b for name, b in self.server.named_buffers() if b.is_floating_point()}
        return {**self.server_state(), **buffers}

    def client_state(self, slots: Sequence[int] | None = None) -> Tensors:
        """Parameters and buffers of all or some clients by name, ``[K, ...]``, up to date on every process."""
        self.gather()
        state = self.client_buffers()
        return state if slots is None else {name: tensor[list(slots)] for name, tensor in state.items()}

    def client_buffers(self) -> Tensors:
        """The same, up to date for this process's own clients only; never waits for another process."""
        self._settle()
        return dict(self.clients.named_buffers())

    def hold(self, stack: ClientStack | None, slots: Sequence[int]) -> None:
        """Note that the models of some clients live in a stack for now, and that other processes hold newer ones."""
        if self._pending is not None and self._pending[0] is not stack:
            self._settle()
        self._pending = None if stack is None else (stack, tuple(slots))
        self._stale_elsewhere = True

    @torch.no_grad()
    def set_server(self, model: Mapping[str, Tensor]) -> None:
        """Overwrite parameters and buffers of the server's model by name."""
        held = {**dict(self.server.named_parameters()), **dict(self.server.named_buffers())}
        for name, value in model.items():
            held[name].copy_(value)

    @torch.no_grad()
    def put(self, slots: Sequence[int], models: Mapping[str, Tensor]) -> None:
        """Set some clients' models; a tensor without client dimension goes to each of them."""
        if self._pending is not None and not set(slots).isdisjoint(self._pending[1]):
            self._settle()
        buffers = dict(self.clients.named_buffers())
        index = torch.tensor(list(slots), dtype=torch.int64, device=next(iter(buffers.values())).device)
        for name, value in models.items():
            buffers[name][index] = value.to(buffers[name].dtype)

    def gather(self) -> None:
        """Bring the client buffers up to date, on every process. Collective where several processes run."""
        buffers = self.client_buffers()
        if self._stale_elsewhere:
            self._stale_elsewhere = False
            self.share(list(buffers.values()))

    def share(self, stacked: Sequence[Tensor]) -> None:
        """Complete tensors ``[K, ...]`` of which each process holds its own clients' part, in place."""
        others = torch.ones(self.num_clients, dtype=torch.bool)
        others[list(self.owned)] = False
        if others.any():
            for tensor in stacked:
                tensor[others.to(tensor.device)] = 0
            sum_over_processes(stacked)

    @property
    def dtype(self) -> torch.dtype:
        """Of the models' parameters."""
        return next(self.server.parameters()).dtype

    def _settle(self) -> None:
        """Write the models that live in a stack into the buffers."""
        if self._pending is None:
            return
        (stack, slots), self._pending = self._pending, None
        if slots == tuple(range(self.num_clients)):
            buffers = dict(self.clients.named_buffers())
            for name, value in stack.canonical().items():
                buffers[name].copy_(value)
        else:
            self.put(slots, stack.canonical())

    def run_server(self, flow: Flow) -> tuple[Tensor, Tensor]:
        """The server's model on every client's rows: embeddings and logits."""
        output: tuple[Tensor, Tensor] = self.server(flow)
        return output

    def run_clients(self, flow: Flow) -> tuple[Tensor, Tensor]:
        """Every client's model on its own rows: embeddings and logits."""
        output: tuple[Tensor, Tensor] = functional_call(self.server, self.client_state(), (flow,))
        return output

    def run_client(self, slot: int, flow: Flow) -> tuple[Tensor, Tensor]:
        """One client's model on every row of a flow."""
        model = {name: tensor[slot] for name, tensor in self.client_state().items()}
        output: tuple[Tensor, Tensor] = functional_call(self.server, model, (flow,))
        return output


class _TensorTree(nn.Module):
    """Buffers under dotted names."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            *path, leaf = name.split(".")
            module: nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_buffer(leaf, tensor)
