"""PAGE's influenced unlearning behind any other method (the paper's Fig. 3)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.data.requests import UnlearningRequest
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.methods.base import Need, Phase, UnlearningMethod
from page_lightning.methods.page import PAGE

_PREFIX = "influenced/"


class InfluencedUnlearning(UnlearningMethod):
    """Runs a method, then lets the clients that the request influenced unlearn too, as PAGE's last phases do.

    The probes lie where the original and the method's unlearned models disagree; influenced clients learn the unlearned
    answers there. After a client request the unlearned model is the server's.

    Args:
        method: unlearns on the clients that forget.
        page: gives the options of adversarial graphs, distillation and the choice of influenced clients.
    """

    def __init__(self, method: UnlearningMethod, page: PAGE = PAGE("fixed")) -> None:  # noqa: B008 - options only
        super().__init__()
        self.method, self.page = method, page
        self.supports = self.supports & method.supports  # type: ignore[misc] # those of the method at hand

    @property
    @override
    def row_name(self) -> str:
        return f"{self.method.row_name}+influenced"

    @property
    @override
    def influenced(self) -> dict[str, Any] | None:
        return self.page.influenced

    @override
    def needs_for(self, request: UnlearningRequest) -> frozenset[Need]:
        probes = {Need.LEAVER_ONLINE} if request.clients else set()
        return self.method.needs_for(request) | probes

    @override
    def check_backbone(self, backbone: Backbone, request: UnlearningRequest) -> None:
        self.method.check_backbone(backbone, request)
        self.page.check_probes(backbone)

    @override
    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        super().prepare(federation, clients, retained, request)
        self.method.prepare(federation, clients, retained, request)
        self.page.prepare_to_follow(federation, clients, retained, request)
        self.federation = self.page.federation = self.method.federation
        self.method.channel = self.page.channel = self.channel

    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        self.method.on_fit_start()
        self.page.on_fit_start()

    @override
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        own = [Phase(_PREFIX + phase.name, phase.rounds) for phase in self.page.last_phases(request)]
        return self.method.phases(request) + own

    @override
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        if phase.name.startswith(_PREFIX):
            figures = self.page.run_round(Phase(phase.name.removeprefix(_PREFIX), phase.rounds), step)
        else:
            figures = self.method.run_round(phase, step)
        self.local_epochs = self.method.local_epochs + self.page.local_epochs
        return figures

    @override
    def method_state(self) -> dict[str, Any]:
        epochs = [self.method.local_epochs, self.page.local_epochs]
        return {"method": self.method.method_state(), "page": self.page.method_state(), "local_epochs": epochs}

    @override
    def load_method_state(self, state: dict[str, Any]) -> None:
        self.method.load_method_state(state["method"])
        self.page.load_method_state(state["page"])
        self.method.local_epochs, self.page.local_epochs = state["local_epochs"]
