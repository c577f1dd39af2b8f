"""GraphSAGE with mean aggregation (Hamilton et al., NeurIPS 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone
from page_lightning.backbones.linear import Linear
from page_lightning.federation.flow import Hop


class GraphSAGE(LayeredBackbone):
    """GraphSAGE: ``mean(neighbours) W_l + b + x W_r`` per layer, as PyG's ``SAGEConv``.

    Args:
        hidden_channels: width ``d`` of the hidden layers.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
    """

    input_weights = ("layers.0.neighbour.weight", "layers.0.root.weight")
    degree_normalized = False

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return _SageLayer(in_channels, out_channels)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        neighbour = hop.convolve("mean", x, layer.neighbour.weight)
        return neighbour + hop.rows(layer.neighbour.bias) + hop.targets(x, layer.root.weight)


class _SageLayer(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.neighbour = Linear(in_channels, out_channels)
        self.root = Linear(in_channels, out_channels, bias=False)
