"""Any PyG layer or model as a backbone: clients one by one, the same results as the stacked backbones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.nn import MessagePassing
from typing_extensions import override

from page_lightning.backbones.base import Backbone, Normalization
from page_lightning.configuration import import_class
from page_lightning.errors import ConfigurationError
from page_lightning.federation.flow import Flow


class PyGModule(Backbone):
    """A PyG module by its class path.

    A layer (a ``MessagePassing`` such as ``torch_geometric.nn.GATv2Conv``) is repeated ``num_layers`` times with ReLU
    and dropout between. Any other module is a whole model: it is built with ``in_channels``, ``out_channels``,
    ``hidden_channels``, ``num_layers`` and ``dropout`` (as PyG's own models are) and called with ``(x, edge_index)``;
    it returns logits, or a pair of embeddings and logits.

    Args:
        module: class path of the layer or model; a bare name is looked up in ``torch_geometric.nn``.
        module_args: further arguments of its constructor.
        hidden_channels: width ``d`` of the hidden layers.
        num_layers: message-passing layers.
        dropout: probability of zeroing a hidden unit in training.
        norm: ``layer`` normalises hidden rows before the activation (layers only; a model brings its own).
    """

    def __init__(
        self,
        module: str = "torch_geometric.nn.GATv2Conv",
        module_args: dict[str, Any] | None = None,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: Normalization = "none",
    ) -> None:
        super().__init__(hidden_channels, num_layers, dropout, norm)
        self.module, self.module_args = module, dict(module_args or {})

    @override
    def build(self, num_features: int, num_classes: int) -> None:
        cls = import_class(self.module, "model.backbone.module", "torch_geometric.nn")
        try:
            self.inner = self._make(cls, num_features, num_classes)
        except (TypeError, ValueError) as error:
            message = f"model.backbone.module_args: {cls.__name__} says: {error}"
            raise ConfigurationError(message) from error
        self._dimensions = {name: tensor.dim() for name, tensor in self._state().items()}

    def _make(self, cls: Any, num_features: int, num_classes: int) -> nn.Module:  # noqa: ANN401 - a module's class
        if issubclass(cls, MessagePassing):
            layers = [cls(i, o, **self.module_args) for i, o in self.widths(num_features, num_classes)]
            return _Layers(layers, self.hidden_channels, self.dropout, self.norm)
        model: nn.Module = cls(
            in_channels=num_features,
            hidden_channels=self.hidden_channels,
            num_layers=self.num_layers,
            out_channels=num_classes,
            dropout=self.dropout,
            **self.module_args,
        )
        return model

    def _state(self) -> dict[str, Tensor]:
        return {**dict(self.inner.named_parameters()), **dict(self.inner.named_buffers())}

    @override
    def forward(self, flow: Flow) -> tuple[Tensor, Tensor]:
        noise = flow.noise
        seeds = [0] * flow.num_clients if noise is None else noise.next_seeds()
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        self.inner.train(noise is not None)
        embeddings, logits = [], []
        for slot, ((x, edge_index), seed) in enumerate(zip(flow.client_graphs(), seeds, strict=True)):
            if len(x) == 0:
                continue
            with torch.random.fork_rng(devices, enabled=noise is not None):
                if noise is not None:
                    torch.manual_seed(seed)
                output = functional_call(self.inner, self._model(slot), (x, edge_index))
            embedding, scores = output if isinstance(output, tuple) else (output, output)
            embeddings.append(embedding)
            logits.append(scores)
        return torch.cat(embeddings)[flow.target_index], torch.cat(logits)[flow.target_index]

    def _model(self, slot: int) -> dict[str, Tensor]:
        stacked = {name: tensor.dim() > self._dimensions[name] for name, tensor in self._state().items()}
        return {name: tensor[slot] if stacked[name] else tensor for name, tensor in self._state().items()}


class _Layers(nn.Module):
    def __init__(self, layers: list[nn.Module], width: int, dropout: float, norm: Normalization) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in layers[1:]) if norm == "layer" else None
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        for index, layer in enumerate(self.layers[:-1]):
            x = layer(x, edge_index)
            x = x if self.norms is None else self.norms[index](x)
            x = nn.functional.dropout(x.relu(), self.dropout, self.training)
        return x, self.layers[-1](x, edge_index)
