"""Graph attention network (Velickovic et al., ICLR 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone, Normalization
from page_lightning.federation.flow import Hop


class GAT(LayeredBackbone):
    """GAT: a softmax-weighted mean over neighbours and the node itself, as PyG's ``GATConv``.

    Args:
        hidden_channels: width ``d`` of the hidden layers, all heads together.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation.
        heads: attention heads of the hidden layers, concatenated; the last layer has one.
    """

    input_weights = ("layers.0.weight",)
    degree_normalized = False
    slope = 0.2

    def __init__(
        self,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: Normalization = "none",
        heads: int = 1,
    ) -> None:
        super().__init__(hidden_channels, num_layers, dropout, norm)
        self.heads = heads

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return _Attention(in_channels, out_channels, 1 if last else self.heads)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        rows = hop.transform(x, layer.weight)
        heads = layer.attention.shape[-3]
        width = rows.shape[1] // heads
        outputs = []
        for head in range(heads):
            part = rows if heads == 1 else rows[:, head * width : (head + 1) * width]
            score = hop.transform(part, layer.attention.select(-3, head))
            outputs.append(hop.attend(part, score[:, 0], score[:, 1], self.slope))
        return (outputs[0] if heads == 1 else torch.cat(outputs, 1)) + hop.rows(layer.bias)


class _Attention(nn.Module):
    """``attention`` holds each head's vectors for the source and the target of an edge, ``[heads, d / heads, 2]``."""

    def __init__(self, in_channels: int, out_channels: int, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.attention = nn.Parameter(torch.empty(heads, out_channels // heads, 2))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        glorot(self.weight)
        with torch.no_grad():
            for side in range(2):
                glorot(vector := torch.empty(1, heads, out_channels // heads))
                self.attention[..., side] = vector[0]
