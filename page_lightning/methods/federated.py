"""Methods that are rounds of federated averaging on the retained data."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods.base import Phase, UnlearningMethod
from page_lightning.modules.rounds import FederatedRounds


class FederatedAveragingMethod(UnlearningMethod):
    """FedAvg on the retained graphs, by the trained federation's own recipe."""

    first_round = 0
    """Number of the first round; it keys the random draws."""

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.restart_rounds()

    def restart_rounds(self) -> None:
        """Fresh client and server optimizers."""
        self._rounds = FederatedRounds(self.federation, self.federation.recipe, self.channel)
        self._server_optimizer: Optimizer = self.federation.recipe.server_optimizer.build(
            self.federation.server.parameters()
        )

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        loss = self._rounds.run(self.retained, self.first_round + step, self._server_optimizer)
        self.federation.trained_rounds = self.first_round + step + 1
        self.local_epochs += self.federation.recipe.local_epochs * self.channel.ledger[-1].clients
        return {"loss": loss}

    @override
    def method_state(self) -> dict[str, Any]:
        return {
            "clients": self._rounds.optimizer_state(),
            "server": self._server_optimizer.state_dict()["state"],
        }

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        self._rounds.load_optimizer_state(state["clients"])
        whole = self._server_optimizer.state_dict()
        self._server_optimizer.load_state_dict({**whole, "state": state["server"]})
