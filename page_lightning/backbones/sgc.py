"""Simple graph convolution (Wu et al., ICML 2019), and the two-layer model that OpenFGL calls SGC."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn
from typing_extensions import override

from page_lightning.backbones.base import LayeredBackbone, Normalization
from page_lightning.backbones.linear import Linear
from page_lightning.federation.flow import Flow, Hop


class SGC(LayeredBackbone):
    """SGC: ``S^K X W + b`` with ``S = D^-1/2 (A + I) D^-1/2`` and ``K = num_layers``.

    The linear model has no hidden layer; its embedding is its logits before the bias.

    Args:
        hidden_channels: width ``d`` of the hidden layers (``openfgl`` only).
        num_layers: propagation steps.
        dropout: probability of zeroing a hidden unit in training (``openfgl`` only).
        norm: ``layer`` normalises hidden rows before the activation (``openfgl`` only).
        variant: ``linear`` is the paper's model; ``openfgl`` has one-step convolutions with a ReLU and dropout between.
    """

    def __init__(
        self,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: Normalization = "none",
        variant: Literal["linear", "openfgl"] = "linear",
    ) -> None:
        super().__init__(hidden_channels, num_layers, dropout, norm)
        self.variant = variant
        self.input_weights = ("linear.weight",) if variant == "linear" else ("layers.0.weight",)

    @override
    def build(self, num_features: int, num_classes: int) -> None:
        if self.variant == "linear":
            self.linear = Linear(num_features, num_classes)
        else:
            super().build(num_features, num_classes)

    @override
    def make_layer(self, in_channels: int, out_channels: int, *, last: bool) -> nn.Module:
        return Linear(in_channels, out_channels)

    @override
    def run_layer(self, layer: Any, hop: Hop, x: Tensor | None) -> Tensor:
        return hop.convolve("symmetric", x, layer.weight) + hop.rows(layer.bias)

    @override
    def forward(self, flow: Flow) -> tuple[Tensor, Tensor]:
        if self.variant == "openfgl":
            return super().forward(flow)
        x = flow.smooth("symmetric", self.linear.weight)
        return x, x + flow.hops[-1].rows(self.linear.bias)
