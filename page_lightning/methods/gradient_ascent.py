"""Gradient ascent on the data to forget."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.data.apply_request import forgotten_nodes
from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.aggregation import client_weights, weighted_mean
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods.base import Need, Phase, UnlearningMethod
from page_lightning.modules.stage import StackStage, mean_per_client, run_stage


class GradientAscent(UnlearningMethod):
    """Raises the loss of the forgotten nodes on the clients that hold them, then averages once.

    It has no retain term and no reference, so a few steps too many ruin the model; a control, not a recommendation.

    Args:
        epochs: full-batch ascent steps.
        lr: learning rate of Adam.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LEAVER_ONLINE})

    def __init__(self, epochs: int = 10, lr: float = 1e-3) -> None:
        super().__init__()
        self.epochs, self.lr = epochs, lr
        self.check_range("epochs", least=1)
        self.check_range("lr", above=0)

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        return [] if request.is_empty else [Phase("ascent", 1)]

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        federation, touched = self.federation, list(self.request.touched)
        stage = AscentStage(federation.server, federation.client_state(), self.clients, self.request, self.lr)
        run_stage(stage, self.epochs)
        self.local_epochs += self.epochs * len(touched)
        models = stage.stack.canonical()
        federation.put(touched, {name: tensor[touched] for name, tensor in models.items()})
        self.average(step)
        if self.request.clients:  # the leaver ascends from the server's model, which then becomes everyone's
            chosen = client_weights(self.clients, federation.recipe.weighting, list(self.request.clients))
            federation.set_server(weighted_mean(models, chosen))
        return {"loss": stage.reported["loss"]}


class AscentStage(StackStage):
    """Ascends the cross-entropy of the forgotten nodes, on the graphs that still hold them."""

    def __init__(
        self,
        backbone: Backbone,
        models: dict[str, Tensor],
        graphs: ClientGraphs,
        request: UnlearningRequest,
        lr: float,
    ) -> None:
        super().__init__(backbone, models, graphs.num_clients, lr)
        if request.clients:
            self.stack.broadcast(dict(backbone.named_parameters()))
        dtype = next(backbone.parameters()).dtype
        self.flow = graphs.flow(backbone.num_hops, dtype)
        self.nodes = forgotten_nodes(graphs, request)
        self.labels = graphs.y[self.nodes]
        self.weights = mean_per_client(graphs.client[self.nodes], graphs.num_clients, dtype)

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        logits = self.stack(self.flow)[1][self.nodes]
        loss = -(F.cross_entropy(logits, self.labels, reduction="none") @ self.weights)
        self.report("loss", loss)
        return loss
