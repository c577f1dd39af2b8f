"""Training on with and without some data: what the data still do to a federation's models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.stack import Tensors
from page_lightning.modules.rounds import FederatedRounds

FRACTIONS = (1.0, 0.5, 0.25, 0.125, 0.0)
"""How far of a step it is tried to go."""


def harmless_fraction(losses: Tensor, tolerance: float) -> float:
    """The largest of :data:`FRACTIONS` of a step by which validation nodes' loss does not rise too much.

    Where training has not settled, two runs differ by more than what the data did, and going on along their difference
    would ruin the model.

    Args:
        losses: loss at each fraction, ``[5]``; where all are zero, for lack of nodes, all pass.
        tolerance: by which share it may rise.
    """
    limit = losses[-1] * (1 + tolerance)
    return next((fraction for fraction, loss in zip(FRACTIONS, losses, strict=True) if loss <= limit), 0.0)


class CounterfactualRounds:
    """Rounds of federated averaging from one starting point, on two sets of graphs side by side.

    Nothing else differs between the two: every client takes part, and units are not dropped.

    Args:
        federation: the starting point; not changed.
        without: the graphs without the data.
        having: the graphs with them.
        local_epochs: epochs of each client in a round.
        channel: what passes between server and clients.
    """

    def __init__(
        self,
        federation: Federation,
        without: ClientGraphs,
        having: ClientGraphs,
        local_epochs: int,
        channel: Channel,
    ) -> None:
        recipe = replace(
            federation.recipe,
            local_epochs=local_epochs,
            participation=1.0,
            server_optimizer=OptimizerOptions("SGD", lr=1.0, weight_decay=0.0),
        )
        self._graphs = without, having
        self._twins = federation.clone(), federation.clone()
        for twin in self._twins:
            twin.owned = federation.owned
        self._rounds = tuple(FederatedRounds(twin, recipe, channel, dropout=False) for twin in self._twins)

    def run(self, round: int) -> Tensor:  # noqa: A002 - the field's word
        """One round of both; the loss without the data, a scalar."""
        losses = []
        for twin, rounds, graphs in zip(self._twins, self._rounds, self._graphs, strict=True):
            optimizer = rounds.recipe.server_optimizer.build(twin.server.parameters())
            losses.append(rounds.run(graphs, round, optimizer))
        return losses[0]

    def difference(self) -> tuple[Tensors, Tensors]:
        """Parameters without the data minus those with them: the server's, and the clients' ``[K, ...]``."""
        without, having = self._twins
        server = {name: value - having.server_state()[name] for name, value in without.server_state().items()}
        mine, theirs = without.client_state(), having.client_state()
        return server, {name: mine[name] - theirs[name] for name in server}

    def state(self) -> list[dict[str, Any]]:
        """What a resumed run needs."""
        pairs = zip(self._twins, self._rounds, strict=True)
        return [{"models": twin.state_dict(), "optimizer": rounds.optimizer_state()} for twin, rounds in pairs]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Continue from :meth:`state`."""
        for twin, rounds, held in zip(self._twins, self._rounds, state, strict=True):
            twin.load_state_dict(held["models"])
            rounds.load_optimizer_state(held["optimizer"])
