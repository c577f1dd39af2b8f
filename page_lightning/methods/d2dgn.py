"""D2DGN: distilling to delete, with a preserver and a destroyer (Sinha, Mandal, Kankanhalli; arXiv 2309.16173)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call
from typing_extensions import override

from page_lightning.data.apply_request import forgotten_mask
from page_lightning.data.requests import RequestKind, UnlearningRequest
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods.base import Phase, UnlearningMethod
from page_lightning.modules.stage import run_stage
from page_lightning.modules.teacher_distillation import TeacherDistillation


class D2DGN(UnlearningMethod):
    """Each client that forgets learns a random model's answers on what it forgets, its own old answers elsewhere.

    The loss is ``alpha * KL(preserver || student)`` over the retained training nodes, on the graphs after the request,
    plus ``(1 - alpha) * KL(destroyer || student)`` over the forgotten nodes, on the graphs before it. The preserver is
    the client's trained model, the destroyer one random model for all clients; both answer in evaluation mode. Then the
    server averages once.

    Args:
        alpha: weight of what is kept.
        epochs: steps of distillation.
        lr: learning rate of Adam.
        student: where it starts: at the ``original`` model, or at ``random`` ones, as released code does.
        seed: of the random models.
    """

    supports: ClassVar[frozenset[RequestKind]] = frozenset({"node", "edge", "feature"})

    def __init__(
        self,
        alpha: float = 0.5,
        epochs: int = 50,
        lr: float = 1e-3,
        student: Literal["original", "random"] = "original",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.alpha, self.epochs, self.lr, self.student, self.seed = alpha, epochs, lr, student, seed
        self.check_range("alpha", least=0, most=1)
        self.check_range("epochs", least=1)
        self.check_range("lr", above=0)

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [] if request.is_empty else [Phase("distillation", 1)]

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        federation, local = self.federation, list(self.request.touched)
        asked, retained = self.clients.select(local), self.retained.select(local)
        forgotten = forgotten_mask(asked, self.request)
        stage = TeacherDistillation(
            federation.server,
            self.original.client_state(local),
            asked,
            forgotten,
            self._destroyed(asked, forgotten),
            retained,
            self.alpha,
            self.lr,
            1 - self.alpha,
            self._kept(retained),
        )
        if self.student == "random":
            stage.stack.broadcast(federation.random(self.seed + 1).server_state())
        run_stage(stage, self.epochs)
        self.local_epochs += self.epochs * len(local)
        federation.put(local, stage.stack.canonical())
        self.average(step)
        return dict(stage.reported)

    def _kept(self, retained: ClientGraphs) -> Tensor:
        """Training nodes of the retained graphs; the ends of deleted edges are forgotten, not kept."""
        kept = retained.masks["train"].clone()
        if self.request.kinds == {"edge"}:
            kept &= ~forgotten_mask(retained, self.request)
        return kept

    @torch.no_grad()
    def _destroyed(self, asked: ClientGraphs, forgotten: Tensor) -> Tensor:
        """The destroyer's probabilities of the forgotten nodes ``[n, C]``."""
        destroyer = self.federation.random(self.seed).averaged_state()
        flow = asked.flow_at(forgotten, self.federation.server.num_hops, self.federation.dtype)
        answers: Tensor = functional_call(self.federation.server, destroyer, (flow,))[1].softmax(1)
        return answers
