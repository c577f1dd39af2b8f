"""What every backbone shares: written once, run for one model or for a stack of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from page_lightning.errors import ConfigurationError
from page_lightning.federation.flow import Flow, Hop

Normalization = Literal["none", "layer"]


class Backbone(nn.Module, ABC):
    """A node classifier that runs on a :class:`~page_lightning.federation.flow.Flow`.

    Constructors take options only and keep each under its own name; :meth:`build` makes the parameters once the data's
    sizes are known. Parameters have no client dimension; running the module under ``torch.func.functional_call`` with
    stacked parameters ``[K, ...]`` gives every client its own model.

    Args:
        hidden_channels: width ``d`` of the hidden layers.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
    """

    input_weights: tuple[str, ...] = ()
    """Names of the parameters that multiply the input features directly (``[F, o]``)."""
    degree_normalized: bool = True
    """Whether a node's message depends on its degree, so that a lost edge is felt one hop further."""

    def __init__(
        self,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: Normalization = "none",
    ) -> None:
        super().__init__()
        for option, value in (("hidden_channels", hidden_channels), ("num_layers", num_layers)):
            if value < 1:
                message = f"model.backbone.{option} is {value}; it must be at least 1"
                raise ConfigurationError(message)
        if not 0 <= dropout < 1:
            message = f"model.backbone.dropout is {dropout}; it must be in [0, 1)"
            raise ConfigurationError(message)
        self.hidden_channels, self.num_layers, self.dropout, self.norm = hidden_channels, num_layers, dropout, norm

    @property
    def num_hops(self) -> int:
        """How far an output looks: 0 for a model without message passing."""
        return self.num_layers

    @abstractmethod
    def build(self, num_features: int, num_classes: int) -> None:
        """Create the parameters for ``F`` input features and ``C`` classes, drawn from the global generator."""

    @abstractmethod
    def forward(self, flow: Flow) -> tuple[Tensor, Tensor]:
        """Embeddings ``[N, d]`` (the last hidden layer after dropout) and logits ``[N, C]`` of the flow's targets."""

    def widths(self, num_features: int, num_classes: int) -> list[tuple[int, int]]:
        """Input and output width of each layer."""
        inner = [self.hidden_channels] * (self.num_layers - 1)
        return list(zip([num_features, *inner], [*inner, num_classes], strict=True))


class LayeredBackbone(Backbone):
    """Layers with a ReLU and dropout between them; a subclass says what one layer does."""

    @abstractmethod
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        """A module that holds one layer's parameters."""

    @abstractmethod
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:  # noqa: ANN401
        """One layer from source rows (``None``: the input features) to target rows."""

    def build(self, num_features: int, num_classes: int) -> None:  # noqa: D102
        widths = self.widths(num_features, num_classes)
        last = len(widths) - 1
        self.layers = nn.ModuleList(self.make_layer(i, o, last=index == last) for index, (i, o) in enumerate(widths))
        self.norms = nn.ModuleList(LayerNorm(o) for _, o in widths[:-1]) if self.norm == "layer" else None

    def forward(self, flow: Flow) -> tuple[Tensor, Tensor]:  # noqa: D102
        x: Tensor | None = None
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            hop = flow.hops[min(index, len(flow.hops) - 1)]
            if index == last:
                embedding = hop.targets(x)
            x = self.run_layer(layer, hop, x)
            if index < last:
                if self.norms is not None:
                    x = self.norms[index](x, hop)
                x = hop.relu_dropout(x, self.dropout)
        assert x is not None  # noqa: S101 - there is at least one layer
        return embedding, x


class LayerNorm(nn.Module):
    """Layer normalisation whose scale and shift may be stacked.

    Args:
        width: columns.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, hop: Hop) -> Tensor:
        """Normalise target rows ``[N, width]``."""
        return nn.functional.layer_norm(x, x.shape[1:]) * hop.rows(self.weight) + hop.rows(self.bias)
