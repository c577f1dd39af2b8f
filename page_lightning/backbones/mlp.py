"""Multilayer perceptron: the same layers without message passing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone
from page_lightning.backbones.linear import Linear
from page_lightning.federation.flow import Hop


class MLP(LayeredBackbone):
    """MLP: ``X W + b`` per layer; ignores edges.

    Args:
        hidden_channels: width ``d`` of the hidden layers.
        num_layers: linear layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
    """

    input_weights = ("layers.0.weight",)
    degree_normalized = False

    @property
    @override
    def num_hops(self) -> int:
        return 0

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return Linear(in_channels, out_channels)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        return hop.targets(x, layer.weight) + hop.rows(layer.bias)
