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

    ``KL(teacher || model)`` on the forgotten nodes plus ``keep * KL(start || model)`` on the retained ones, the mean
    over nodes of each client.

    Args:
        backbone: a built backbone.
        models: the clients' models, ``[U, ...]`` by name.
        asked: graphs in which forgotten nodes are queried, ``U`` slots.
        nodes: forgotten nodes, bool ``[N]`` over ``asked``.
        answers: the teacher's probabilities, ``[n, C]`` in the order of ``nodes``.
        retained: graphs without the request's data, ``U`` slots.
        keep: weight of what is kept.
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
    ) -> None:
        super().__init__(backbone, models, asked.num_clients, lr)
        dtype = next(backbone.parameters()).dtype
        self.flow = asked.flow_at(nodes, backbone.num_hops, dtype)
        self.kept_flow = retained.flow(backbone.num_hops, dtype)
        self.answers, self.keep = answers, keep
        self.weight = mean_per_client(asked.client[nodes], asked.num_clients, dtype)
        self.kept_weight = mean_per_client(retained.client, retained.num_clients, dtype)
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
        return forget + self.keep * keep
