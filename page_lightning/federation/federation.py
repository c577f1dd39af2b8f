"""The state of a federation: the server's model and every client's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from page_lightning.backbones.base import Backbone
from page_lightning.federation.flow import Flow
from page_lightning.federation.processes import sum_over_processes
from page_lightning.federation.stack import ClientStack, Tensors


class Federation(nn.Module):
    """A server model and ``K`` client models.

    The server's parameters are ordinary parameters; the clients' models are buffers ``[K, ...]`` under ``clients``.
    Training works on a :class:`ClientStack`; the buffers are brought up to date by :meth:`gather`, which any reading of
    the state dict does by itself.

    Args:
        backbone: a built backbone, whose parameters start every model.
        num_clients: ``K``.
    """

    def __init__(self, backbone: Backbone, num_clients: int) -> None:
        super().__init__()
        self.server = backbone
        self.num_clients = num_clients
        models = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
        self.clients = _TensorTree(
            {name: t.detach().expand(num_clients, *t.shape).clone() for name, t in models.items()}
        )
        self._pending: tuple[ClientStack, tuple[int, ...]] | None = None
        self._stale_elsewhere = False
        self.owned: Sequence[int] = range(num_clients)
        self.register_state_dict_pre_hook(lambda module, *_: module.gather())

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
        if self._pending is not None:
            self._write(*self._pending)
            self._pending = None
        return dict(self.clients.named_buffers())

    def hold(self, stack: ClientStack | None, slots: Sequence[int]) -> None:
        """Note that the models of some clients live in a stack for now, and that other processes hold newer ones."""
        if self._pending is not None and self._pending[0] is not stack:
            self._write(*self._pending)
        self._pending = None if stack is None else (stack, tuple(slots))
        self._stale_elsewhere = True

    @torch.no_grad()
    def put(self, slots: Sequence[int], models: Mapping[str, Tensor]) -> None:
        """Set some clients' models; a tensor without client dimension goes to each of them."""
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

    def _write(self, stack: ClientStack, slots: tuple[int, ...]) -> None:
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
