"""Graph convolutional network (Kipf and Welling, ICLR 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone
from page_lightning.federation.flow import Hop


class GCN(LayeredBackbone):
    """GCN: ``D^-1/2 (A + I) D^-1/2 X W + b`` per layer, as PyG's ``GCNConv``.

    Args:
        hidden_channels: width ``d`` of the hidden layers.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
    """

    input_weights = ("layers.0.weight",)

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return _Convolution(in_channels, out_channels)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        return hop.convolve("symmetric", x, layer.weight) + hop.rows(layer.bias)


class _Convolution(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        glorot(self.weight)
