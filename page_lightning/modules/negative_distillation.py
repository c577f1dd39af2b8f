"""Negative distillation: the unlearned model's answers on adversarial graphs, learned elsewhere (PAGE Eq. 10-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.dense import DenseFlow
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.modules.stage import StackStage, mean_per_client

Positive = Literal["soft_ce", "task", "mse"]
Negative = Literal["logits", "probabilities"]


class NegativeDistillation(StackStage):
    """All influenced clients at once; one step is one epoch.

    ``L = L_pos + alpha * mean over probes of L_neg``: ``L_pos`` keeps a client's own answers on its retained nodes,
    ``L_neg`` asks for the unlearned model's answers on each unlearning client's adversarial graph.

    Args:
        backbone: a built backbone.
        models: the influenced clients' models, students and teachers alike, ``[I, ...]`` by name.
        graphs: their retained graphs, ``I`` slots.
        x: probes' features ``[B, N, F]``.
        adjacency: probes' adjacency ``[B, N, N]``.
        answers: the unlearned models' logits on the probes ``[B, N, C]``; all that a client needs of those models.
        asked: which student answers which probe, bool ``[I, B]``; by default all answer all.
        alpha: weight of ``L_neg``.
        positive: ``soft_ce`` to the starting model's answers on all retained nodes; ``task`` to the labels of training
            nodes; ``mse`` to the starting model's logits.
        negative: squared error of ``logits``, or of ``probabilities``.
        lr: learning rate of Adam.
    """

    def __init__(
        self,
        backbone: Backbone,
        models: Mapping[str, Tensor],
        graphs: ClientGraphs,
        x: Tensor,
        adjacency: Tensor,
        answers: Tensor,
        asked: Tensor | None = None,
        alpha: float = 1.0,
        positive: Positive = "soft_ce",
        negative: Negative = "logits",
        lr: float = 1e-3,
    ) -> None:
        super().__init__(backbone, models, graphs.num_clients, lr)
        dtype = next(backbone.parameters()).dtype
        self.alpha, self.positive, self.negative = alpha, positive, negative
        self.flow = graphs.flow(backbone.num_hops, dtype, "train" if positive == "task" else None)
        rows = self.flow.target_index
        self.weight = mean_per_client(graphs.client[rows], graphs.num_clients, dtype)
        self.y = graphs.y[rows]
        # every student answers every probe: the probes side by side, once per student
        self.students, self.probes = graphs.num_clients, x.shape[0]
        self.x, self.adjacency, self.answers = x, adjacency, answers
        pairs = torch.ones(self.students, self.probes, device=x.device) if asked is None else asked
        self.share = (pairs / pairs.sum(1, keepdim=True).clamp(min=1)).to(dtype)
        with torch.no_grad():
            self.teacher = self.stack(self.flow)[1]

    def _keep(self) -> Tensor:
        logits = self.stack(self.flow)[1]
        if self.positive == "task":
            per_node = F.cross_entropy(logits, self.y, reduction="none")
        elif self.positive == "mse":
            per_node = (logits - self.teacher).square().mean(1)
        else:
            per_node = -(self.teacher.softmax(1) * logits.log_softmax(1)).sum(1)
        return per_node @ self.weight

    def _imitate(self) -> Tensor:
        total = self.answers.new_zeros(())
        hops = self.stack.backbone.num_hops
        for probe in range(self.probes):
            x = self.x[probe].expand(self.students, -1, -1)
            adjacency = self.adjacency[probe].expand(self.students, -1, -1)
            logits = self.stack(DenseFlow(x, adjacency, hops))[1].view(self.students, x.shape[1], -1)
            wanted = self.answers[probe]
            if self.negative == "probabilities":
                logits, wanted = logits.softmax(-1), wanted.softmax(-1)
            total = total + (logits - wanted).square().mean((1, 2)) @ self.share[:, probe]
        return total

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        keep = self._keep()
        self.report("loss_pos", keep / self.students)
        if not self.probes or self.alpha == 0:
            return keep
        imitate = self._imitate()
        self.report("loss_neg", imitate / self.students)
        return keep + self.alpha * imitate
