"""Local unlearning: move the prototypes of what is to be forgotten (PAGE Eq. 6-9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.modules.stage import StackStage, mean_per_client
from page_lightning.prototypes import Prototypes, class_prototypes, private_part

Target = Literal["private", "common", "matched", "zero"]
Retain = Literal["none", "ce", "kd"]


class PrototypeUnlearning(StackStage):
    """All unlearning clients at once; one step is one epoch.

    The loss is the squared distance between the forgotten nodes' class prototypes, recomputed in every step on the
    graph that still holds them, and a constant target. It moves the encoder only: the last layer gets no gradient.

    Args:
        backbone: a built backbone.
        models: the clients' models, ``[U, ...]`` by name.
        graphs: the unlearning clients with the request's data, ``U`` slots.
        forgotten: nodes to forget, bool ``[N]``.
        bases: orthonormal basis of the others' prototypes for each client, ``U`` matrices ``[d, r]``.
        target: ``private``: ``p_priv``, Eq. 9 as printed; ``common``: ``p_com``, as the paper's introduction reads;
            ``matched``: the starting prototype plus ``strength * p_priv`` (gradient matching); ``zero``: the ablation
            without any projection.
        strength: of ``matched``.
        retain: ``none`` as in the paper; ``ce`` adds the cross-entropy, ``kd`` the divergence from the starting model,
            on the retained training nodes.
        retained: the same clients' graphs without the request's data; needed where something is retained.
        lr: learning rate of Adam.
    """

    def __init__(
        self,
        backbone: Backbone,
        models: Mapping[str, Tensor],
        graphs: ClientGraphs,
        forgotten: Tensor,
        bases: Sequence[Tensor],
        target: Target = "private",
        strength: float = 1.0,
        retain: Retain = "none",
        retained: ClientGraphs | None = None,
        lr: float = 1e-3,
    ) -> None:
        super().__init__(backbone, models, graphs.num_clients, lr)
        dtype = next(backbone.parameters()).dtype
        self.flow = graphs.flow_at(forgotten, backbone.num_hops, dtype)
        self.y, self.client = graphs.y[forgotten], graphs.client[forgotten]
        self.num_classes = graphs.num_classes
        with torch.no_grad():
            start = self.prototypes()
            self.goal = self._goal(start, bases, target, strength)
        self.per_client = start.present.sum(1).clamp(min=1).to(dtype) * start.mean.shape[2]
        self.retain = retain
        if retain != "none" and retained is not None:
            self.kept_flow = retained.flow(backbone.num_hops, dtype, "train")
            self.kept_y = retained.y[self.kept_flow.target_index]
            owner = retained.client[self.kept_flow.target_index]
            self.kept_weight = mean_per_client(owner, retained.num_clients, dtype)
            with torch.no_grad():
                self.kept_teacher = self.stack(self.kept_flow)[1].log_softmax(1)

    def prototypes(self) -> Prototypes:
        """Prototypes of the forgotten nodes under the models as they are now."""
        embedding, _ = self.stack(self.flow)
        return class_prototypes(embedding, self.y, self.client, self.stack.num_clients, self.num_classes)

    @staticmethod
    def _goal(start: Prototypes, bases: Sequence[Tensor], target: Target, strength: float) -> Tensor:
        if target == "zero":
            return torch.zeros_like(start.mean)
        private = torch.stack([private_part(mean, basis) for mean, basis in zip(start.mean, bases, strict=True)])
        if target == "private":
            return private
        return start.mean + (1.0 if target == "common" else strength) * private

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        now = self.prototypes()
        gap = (now.mean - self.goal).square().sum(2) * now.present
        loss = (gap.sum(1) / self.per_client).sum()
        self.report("loss", loss.detach() / self.stack.num_clients)
        if self.retain != "none":
            logits = self.stack(self.kept_flow)[1]
            if self.retain == "ce":
                kept = F.cross_entropy(logits, self.kept_y, reduction="none")
            else:
                kept = F.kl_div(logits.log_softmax(1), self.kept_teacher, reduction="none", log_target=True).sum(1)
            loss = loss + kept @ self.kept_weight
        return loss
