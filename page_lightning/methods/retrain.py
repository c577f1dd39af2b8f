"""Exact unlearning: training again without the data."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.federation import Federation
from page_lightning.methods.base import Need, Phase
from page_lightning.methods.federated import FederatedAveragingMethod


class Retrain(FederatedAveragingMethod):
    """Trains from the original initial models on the retained graphs, with the original's random streams.

    Everything that depends on the data is rebuilt from the retained graphs: normalisations, counts, weights of the
    mean. The partition stays. With an empty request the result equals the original bit for bit.

    Args:
        rounds: stop after this many rounds (``Retrain@r``); by default as many as the original had.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.INITIAL_MODEL})

    def __init__(self, rounds: int | None = None) -> None:
        super().__init__()
        self.rounds = rounds
        self.check_range("rounds", least=1)

    @property
    @override
    def row_name(self) -> str:
        return "retrain" if self.rounds is None else f"retrain@{self.rounds}"

    @override
    def start(self, federation: Federation) -> Federation:
        return federation.fresh()

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [Phase("retrain", self.rounds or self.original.trained_rounds)]
