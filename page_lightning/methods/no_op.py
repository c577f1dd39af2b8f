"""Doing nothing: the row that shows what a table can see."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from page_lightning.data.requests import UnlearningRequest
from page_lightning.methods.base import Phase, UnlearningMethod


class NoOp(UnlearningMethod):
    """Keeps the trained models as they are."""

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return []

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        return {}
