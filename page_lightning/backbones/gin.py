"""Graph isomorphism network (Xu et al., ICLR 2019)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone
from page_lightning.backbones.linear import Linear
from page_lightning.federation.flow import Hop


class GIN(LayeredBackbone):
    """GIN: ``MLP(x + sum(neighbours))`` per layer with a two-layer MLP, as PyG's ``GINConv`` at epsilon 0.

    Args:
        hidden_channels: width ``d`` of the hidden layers and inside each MLP.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
    """

    input_weights = ("layers.0.first.weight",)
    degree_normalized = False

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return _GinLayer(in_channels, self.hidden_channels, out_channels)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        inner = (hop.convolve("sum", x, layer.first.weight) + hop.rows(layer.first.bias)).relu()
        return hop.map(inner, layer.second.weight) + hop.rows(layer.second.bias)


class _GinLayer(nn.Module):
    def __init__(self, in_channels: int, inner: int, out_channels: int) -> None:
        super().__init__()
        self.first = Linear(in_channels, inner)
        self.second = Linear(inner, out_channels)
