"""Several processes, each of which trains some of the clients."""

from __future__ import annotations

from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from torch import distributed
from typing_extensions import override


class ClientParallelStrategy(DDPStrategy):
    """Processes own clients; one reduction per round averages their models (``--trainer.strategy client_parallel``).

    The module is not wrapped: a wrapper would average client gradients between processes, or wait for ever where they
    own different numbers of clients. Every process starts from the first one's weights.
    """

    strategy_name = "client_parallel"

    @override
    def configure_ddp(self) -> None:
        if self.model is not None:
            for tensor in self.model.state_dict().values():
                distributed.broadcast(tensor, src=0)


if "client_parallel" not in StrategyRegistry.available_strategies():
    StrategyRegistry.register(
        "client_parallel", ClientParallelStrategy, "Each process trains its own clients; one reduction per round."
    )
