"""Distilling forgotten nodes towards a model that never saw them, retained nodes towards the starting model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.modules.stage import StackStage, mean_per_client


class TeacherDistillation(StackStage):
    """All clients that forget at once; one step is one epoch.

    ``forget * KL(teacher || model)`` on the forgotten nodes plus ``keep * KL(start || model)`` on retained ones, each
    the mean over nodes of a client; ``start`` are the models that the stage is made with.

    Args:
        backbone: a built backbone.
        models: the clients' models, ``[U, ...]`` by name.
        asked: graphs in which forgotten nodes are queried, ``U`` slots.
        nodes: forgotten nodes, bool ``[N]`` over ``asked``.
        answers: the teacher's probabilities, ``[n, C]`` in the order of ``nodes``.
        retained: graphs without the request's data, ``U`` slots.
        keep: weight of what is kept.
        forget: weight of what is forgotten.
        kept_nodes: the retained nodes that are kept alike, bool over ``retained``; by default all.
        lr: learning rate of Adam.
    """

    def __init__(
        self,
        backbone: Backbone,
        models: Mapping[str, Tensor],
        asked: ClientGraphs,
        nodes: Tensor,
        answers: Tensor,
        retained: ClientGraphs,
        keep: float = 1.0,
        lr: float = 3e-3,
        forget: float = 1.0,
        kept_nodes: Tensor | None = None,
    ) -> None:
        super().__init__(backbone, models, asked.num_clients, lr)
        dtype = next(backbone.parameters()).dtype
        self.flow = asked.flow_at(nodes, backbone.num_hops, dtype)
        kept = torch.ones_like(retained.masks["train"]) if kept_nodes is None else kept_nodes
        self.kept_flow = retained.flow_at(kept, backbone.num_hops, dtype)
        self.answers, self.keep, self.forget = answers, keep, forget
        self.weight = mean_per_client(asked.client[nodes], asked.num_clients, dtype)
        self.kept_weight = mean_per_client(retained.client[kept], retained.num_clients, dtype)
        with torch.no_grad():
            self.start = self.stack(self.kept_flow)[1].log_softmax(1)

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        log_q = self.stack(self.flow)[1].log_softmax(1)
        forget = F.kl_div(log_q, self.answers, reduction="none").sum(1) @ self.weight
        kept = self.stack(self.kept_flow)[1].log_softmax(1)
        keep = F.kl_div(kept, self.start, reduction="none", log_target=True).sum(1) @ self.kept_weight
        self.report("loss", forget.detach() / self.stack.num_clients)
        self.report("loss_keep", keep.detach() / self.stack.num_clients)
        return self.forget * forget + self.keep * keep
