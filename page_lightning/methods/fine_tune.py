"""Training on without the data."""

from __future__ import annotations

from typing_extensions import override

from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods.base import Phase
from page_lightning.methods.federated import FederatedAveragingMethod


class FineTune(FederatedAveragingMethod):
    """Continues training on the retained graphs (called Natural in part of the literature).

    Args:
        rounds: communication rounds.
    """

    def __init__(self, rounds: int = 5) -> None:
        super().__init__()
        self.rounds = rounds
        self.check_range("rounds", least=1)

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.first_round = federation.trained_rounds

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [Phase("fine_tune", self.rounds)]
