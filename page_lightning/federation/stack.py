"""The models of several clients as the tensors that an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.compact import CompactRows
from page_lightning.federation.flow import Flow

Tensors = dict[str, Tensor]


class ClientStack(nn.Module):
    """``K`` copies of a backbone with every parameter stacked, first-layer rows held once where clients share them.

    Args:
        backbone: the architecture; its own parameters are the initial models.
        num_clients: ``K``.
        compact: layout of the parameters in ``backbone.input_weights``, if they are held compactly.
        num_groups: ``G`` federations of ``K / G`` consecutive clients each. With more than one, the models that go to
            and come from the server have a leading dimension ``[G, ...]``.
    """

    def __init__(
        self, backbone: Backbone, num_clients: int, compact: CompactRows | None = None, num_groups: int = 1
    ) -> None:
        super().__init__()
        self.num_groups = num_groups
        self._backbone = (backbone,)  # in a tuple, so that its parameters are not this module's
        self.num_clients, self.compact = num_clients, compact
        self.names = [name for name, _ in backbone.named_parameters()]
        self.tensors = nn.ParameterList()
        for name, tensor in backbone.named_parameters():
            shared = tensor.detach()
            if self._is_compact(name) and compact is not None:
                stacked = compact.broadcast(shared.expand(num_groups, *shared.shape))
            else:
                stacked = shared.expand(num_clients, *shared.shape)
            self.tensors.append(nn.Parameter(stacked.clone()))
        self.local_buffers: Tensors = {
            name: buffer.expand(num_clients, *buffer.shape).clone() for name, buffer in backbone.named_buffers()
        }

    @property
    def backbone(self) -> Backbone:
        """The architecture."""
        return self._backbone[0]

    def _is_compact(self, name: str) -> bool:
        return self.compact is not None and name in self.backbone.input_weights

    def named(self) -> Iterable[tuple[str, Tensor]]:
        """Each parameter's name in the backbone, and its stack in the layout held here."""
        return zip(self.names, self.tensors, strict=True)

    def assign(self, name: str, value: Tensor) -> None:
        """Overwrite one parameter's stack."""
        self.tensors[self.names.index(name)].copy_(value)

    def forward(self, flow: Flow) -> tuple[Tensor, Tensor]:
        """Every client's own model on its own rows of the flow."""
        output: tuple[Tensor, Tensor] = functional_call(
            self.backbone, {**dict(self.named()), **self.local_buffers}, (flow,)
        )
        return output

    @torch.no_grad()
    def broadcast(self, shared: Mapping[str, Tensor]) -> None:
        """Start every client from one model; buffers stay local."""
        for name in self.names:
            tensor = shared[name]
            if self._is_compact(name) and self.compact is not None:
                self.assign(name, self.compact.broadcast(tensor))
            else:
                self.assign(name, self._to_clients(tensor))

    def _to_clients(self, shared: Tensor) -> Tensor:
        if self.num_groups == 1:
            return shared.expand(self.num_clients, *shared.shape)
        return shared.repeat_interleave(self.num_clients // self.num_groups, 0)

    @torch.no_grad()
    def load(self, stacked: Mapping[str, Tensor]) -> None:
        """Take the models from canonical tensors ``[K, ...]``, buffers included."""
        for name in self.names:
            self.assign(name, self.to_layout(name, stacked[name]))
        for name, buffer in self.local_buffers.items():
            buffer.copy_(stacked[name])

    @torch.no_grad()
    def canonical(self) -> Tensors:
        """The models as ``[K, ...]``, buffers included."""
        parameters = {name: self.from_layout(name, tensor.detach()) for name, tensor in self.named()}
        return {**parameters, **self.local_buffers}

    def to_layout(self, name: str, stacked: Tensor) -> Tensor:
        """A tensor shaped like a parameter's canonical stack, in the layout held here."""
        return self.compact.compress(stacked) if self._is_compact(name) and self.compact is not None else stacked

    def from_layout(self, name: str, held: Tensor) -> Tensor:
        """The inverse of :meth:`to_layout`."""
        return self.compact.expand(held) if self._is_compact(name) and self.compact is not None else held

    @torch.no_grad()
    def weighted_sum(self, weights: Tensor) -> Tensors:
        """``sum_k weights[k] model[k]`` for every parameter and floating-point buffer; over each group where several.

        Args:
            weights: ``[K]``.
        """
        result: Tensors = {}
        for name, tensor in self.named():
            if self._is_compact(name) and self.compact is not None:
                row_weights = self.compact.average_weights(weights)
                result[name] = self.compact.average(tensor, row_weights)
            else:
                result[name] = self._sum(weights, tensor)
        for name, buffer in self.local_buffers.items():
            if buffer.is_floating_point():
                result[name] = self._sum(weights, buffer)
        return result

    def _sum(self, weights: Tensor, stacked: Tensor) -> Tensor:
        if self.num_groups == 1:
            mean: Tensor = torch.tensordot(weights, stacked, 1)
            return mean
        total = weights.view(self.num_groups, 1, -1) @ stacked.reshape(
            self.num_groups, len(weights) // self.num_groups, -1
        )
        return total.view(self.num_groups, *stacked.shape[1:])


class SeparateStack(ClientStack):
    """Every client's model as tensors of its own, for optimizers that must not see them together.

    That is any optimizer that is not element-wise, and any whose step count differs between clients.

    Args:
        backbone: the architecture; its own parameters are the initial models.
        num_clients: ``K``.
    """

    def __init__(self, backbone: Backbone, num_clients: int) -> None:
        super().__init__(backbone, num_clients)
        self.models = nn.ModuleList(
            nn.ParameterList(nn.Parameter(tensor.detach()[slot].clone()) for tensor in self.tensors)
            for slot in range(num_clients)
        )
        self.tensors = nn.ParameterList()

    @override
    def named(self) -> Iterable[tuple[str, Tensor]]:
        return ((name, torch.stack(parts)) for name, *parts in zip(self.names, *self.models, strict=True))

    @override
    def assign(self, name: str, value: Tensor) -> None:
        index = self.names.index(name)
        for model, part in zip(self.models, value.unbind(0), strict=True):
            list(model.parameters())[index].copy_(part)
