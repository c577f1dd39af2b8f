"""Training a small addition to a frozen model on every client at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.randomness import DropoutStream
from page_lightning.modules.stage import Stage, mean_per_client

Adapter = Literal["sparse", "low_rank"]


class AdapterTraining(Stage):
    """Local training of ``theta + addition`` where only the addition is trained; one step is one local epoch.

    Args:
        backbone: a built backbone; its parameters are the frozen model.
        graphs: the clients to train, ``U`` slots; each needs a training node.
        adapter: what every client starts from, by name of the parameter.
        masks: entries that a sparse addition may change, bool, by name; none for a low-rank one.
        rank: of the factors of a low-rank addition ``[i, r] [r, o]``, which starts at zero.
        optimizer: of the additions.
        seed: of dropout and of the factors.
        round: keys both.
    """

    def __init__(
        self,
        backbone: Backbone,
        graphs: ClientGraphs,
        adapter: Mapping[str, Tensor],
        masks: Mapping[str, Tensor] | None,
        rank: int,
        optimizer: OptimizerOptions,
        seed: int,
        round: int,  # noqa: A002 - the field's word
    ) -> None:
        super().__init__()
        self._backbone, self.num_clients = (backbone,), graphs.num_clients
        self.base = {name: tensor.detach() for name, tensor in backbone.named_parameters()}
        self.buffers_of = dict(backbone.named_buffers())
        self.adapter, self.masks = dict(adapter), masks
        self.names = list(adapter)
        start: list[Tensor] = []
        draws = torch.Generator(graphs.device).manual_seed((seed * 1_000_003 + round) & (2**63 - 1))
        for tensor in adapter.values():
            if masks is not None:
                start.append(tensor)
            else:
                left = torch.randn(tensor.shape[0], rank, generator=draws, dtype=tensor.dtype, device=tensor.device)
                start += [left / rank**0.5, tensor.new_zeros(rank, tensor.shape[1])]
        self.tensors = nn.ParameterList(nn.Parameter(t.expand(self.num_clients, *t.shape).clone()) for t in start)
        dtype = next(iter(self.base.values())).dtype
        self.flow = graphs.flow(backbone.num_hops, dtype, "train")
        self.labels = graphs.y[self.flow.target_index]
        self.weight = mean_per_client(graphs.client[self.flow.target_index], graphs.num_clients, dtype)
        self.noise = DropoutStream(seed, graphs.clients, round, graphs.device)
        self._optimizers = [optimizer.build(self.tensors)]

    @property
    @override
    def stage_optimizers(self) -> list[Optimizer]:
        return self._optimizers

    def additions(self) -> dict[str, Tensor]:
        """What each client adds to the frozen model, ``[U, ...]`` by name."""
        if self.masks is not None:
            return {name: t * self.masks[name] for name, t in zip(self.names, self.tensors, strict=True)}
        factors = list(self.tensors)
        pairs = zip(self.names, factors[::2], factors[1::2], strict=True)
        return {name: self.adapter[name] + left @ right for name, left, right in pairs}

    def sent(self) -> dict[str, Tensor]:
        """What each client sends of it, ``[U, ...]``: the entries that may change, or both factors."""
        if self.masks is not None:
            return {name: t.detach()[:, self.masks[name]] for name, t in zip(self.names, self.tensors, strict=True)}
        sides = [f"{name}.{side}" for name in self.names for side in ("left", "right")]
        return {name: t.detach() for name, t in zip(sides, self.tensors, strict=True)}

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        added = self.additions()
        model = {
            name: t + added[name] if name in added else t.expand(self.num_clients, *t.shape)
            for name, t in self.base.items()
        }
        buffers = {name: b.expand(self.num_clients, *b.shape).clone() for name, b in self.buffers_of.items()}
        self.flow.noise = self.noise
        _, logits = functional_call(self._backbone[0], {**model, **buffers}, (self.flow,))
        self.flow.noise = None
        loss = F.cross_entropy(logits, self.labels, reduction="none") @ self.weight
        self.report("loss", loss.detach() / self.num_clients)
        return loss
