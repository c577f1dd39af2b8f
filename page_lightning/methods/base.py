"""What an unlearning method is: an ordered list of phases, each some communication rounds."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import SGD, Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.configuration import class_config
from page_lightning.data.requests import RequestKind, UnlearningRequest
from page_lightning.errors import CheckpointMismatchError, ConfigurationError, UnsupportedRequestError
from page_lightning.federation.aggregation import client_weights, weighted_mean
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Channel, Message
from page_lightning.federation.processes import owners

ALL_KINDS: frozenset[RequestKind] = frozenset({"node", "edge", "feature", "client"})


class Need(Enum):
    """What a method asks for beyond the trained models and the clients that stay."""

    HISTORY = auto()
    """Models of earlier rounds, kept during training."""
    INITIAL_MODEL = auto()
    """The models before the first round."""
    LEAVER_ONLINE = auto()
    """Departing clients still take part."""
    VALIDATION_NODES = auto()
    """Labels of validation nodes."""


@dataclass(frozen=True)
class Phase:
    """A named part of a method.

    Args:
        name: for instance ``retrain``.
        rounds: communication rounds it takes.
    """

    name: str
    rounds: int


class UnlearningMethod(LightningModule, ABC):
    """Turns a trained federation into one that behaves as if the request's data had never been there.

    A subclass says which phases it has (:meth:`phases`) and what one round of a phase does (:meth:`run_round`). A
    Trainer runs it with one epoch per round; :func:`unlearn` runs it without one and gives the same models.

    Constructor arguments are kept as attributes of the same name.

    Attributes:
        supports: kinds of request the method can carry out.
        needs: what it asks for.
        original: the trained federation, never changed.
        federation: the federation being changed.
        clients: all graphs as they were in training.
        retained: the graphs without the request's data; departed clients' slots are empty.
        request: what to forget.
        channel: what passes between server and clients.
        phase_cpu_seconds: CPU seconds of this process in each phase so far.
    """

    supports: ClassVar[frozenset[RequestKind]] = ALL_KINDS
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.channel = Channel()
        self.local_epochs = 0
        self.phase_cpu_seconds: dict[str, float] = {}
        self._original: tuple[Federation, ...] = ()

    def check_range(
        self, *names: str, least: float | None = None, above: float | None = None, most: float | None = None
    ) -> None:
        """Refuse options outside their range; those that are none pass.

        Raises:
            ConfigurationError: names the option.
        """
        for name in names:
            value = getattr(self, name)
            if value is None or (
                (least is None or value >= least)
                and (above is None or value > above)
                and (most is None or value <= most)
            ):
                continue
            bounds = {"at least": least, "above": above, "at most": most}
            wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
            message = f"{name} of {type(self).__name__} is {value}; it must be {wanted}"
            raise ConfigurationError(message)

    @property
    def row_name(self) -> str:
        """The method's name in tables."""
        name = type(self).__name__
        if name.isupper():
            return name.lower()
        return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")

    @property
    def influenced(self) -> dict[str, Any] | None:
        """Clients the method chose as influenced, and their similarities; none where it does not choose."""
        return None

    @property
    def original(self) -> Federation:
        """The trained federation."""
        return self._original[0]

    @abstractmethod
    def phases(self, request: UnlearningRequest) -> list[Phase]:
        """The method's phases for a request, in order; known once :meth:`prepare` was called."""

    def needs_for(self, request: UnlearningRequest) -> frozenset[Need]:  # noqa: ARG002 - for subclasses
        """What the method asks for to carry out a request; by default the same for all."""
        return self.needs

    @property
    def history_option(self) -> str:
        """The option of ``fit`` that keeps the rounds which the method needs, where it needs any."""
        return "--history.first_n 8"

    def prepare(
        self, federation: Federation, clients: ClientGraphs, retained: ClientGraphs, request: UnlearningRequest
    ) -> None:
        """Take over what a run needs. A subclass may add to it; it must not read the request's data unless it says so.

        Raises:
            UnsupportedRequestError: the method cannot carry out this kind of request.
        """
        unsupported = sorted(request.kinds - self.supports)
        if unsupported:
            raise UnsupportedRequestError(type(self).__name__, unsupported)
        self.check_backbone(federation.server, request)
        self._original = (federation,)  # in a tuple: checkpoints hold the result only
        self.federation = self.start(federation)
        self.clients, self.retained, self.request = clients, retained, request
        self.channel = Channel()
        self.local_epochs = 0
        self.phase_cpu_seconds = {}

    def check_backbone(self, backbone: Backbone, request: UnlearningRequest) -> None:
        """Refuse an architecture that the method cannot work with; known before anything is trained.

        Raises:
            ConfigurationError: it cannot.
        """

    def start(self, federation: Federation) -> Federation:
        """The federation that the rounds change; by default a copy of the trained one."""
        return federation.clone()

    @abstractmethod
    def run_round(self, phase: Phase, step: int) -> dict[str, Tensor]:
        """One communication round: round ``step`` of a phase.

        Returns:
            Figures to log, scalars.
        """

    def carry_out(self, phase: Phase, step: int) -> dict[str, Tensor]:
        """:meth:`run_round`, timed."""
        start = time.process_time()
        figures = self.run_round(phase, step)
        spent = time.process_time() - start
        self.phase_cpu_seconds[phase.name] = self.phase_cpu_seconds.get(phase.name, 0.0) + spent
        return figures

    def result(self) -> Federation:
        """The unlearned federation; departed clients' models are erased."""
        self.erase_departed()
        return self.federation

    @property
    def staying(self) -> list[int]:
        """Clients that still hold nodes."""
        return [slot for slot, size in enumerate(self.retained.sizes) if size]

    def average(self, number: int) -> None:
        """The server averages the clients that stay, by the weights of the retained graphs.

        Args:
            number: of the round, for the ledger.
        """
        staying, server = self.staying, self.federation.server_state()
        models = self.federation.client_state()
        self.channel.send(
            Message.of_model("up", staying, server, lambda: self.federation.client_state(staying)), number
        )
        weights = client_weights(self.retained, self.federation.recipe.weighting, staying)
        self.federation.set_server(weighted_mean(models, weights))

    def erase_departed(self) -> None:
        """Leave nothing in the slots of clients that left, by this request or an earlier one."""
        departed = [slot for slot, size in enumerate(self.retained.sizes) if not size]
        if departed:
            blank = {name: torch.zeros_like(tensor[0]) for name, tensor in self.federation.client_state().items()}
            self.federation.put(departed, blank)

    def method_state(self) -> dict[str, Any]:
        """What a resumed run needs beyond the federation; tensors and plain values."""
        return {}

    def load_method_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`method_state`."""

    # -- under a Trainer -----------------------------------------------------------------------------------------------

    def locate(self, round: int) -> tuple[Phase, int]:  # noqa: A002 - the field's word
        """The phase that a round belongs to, and the round's place in it."""
        step = round
        for phase in self.phases(self.request):
            if step < phase.rounds:
                return phase, step
            step -= phase.rounds
        message = f"round {round} lies behind the last phase"
        raise IndexError(message)

    @override
    def configure_model(self) -> None:
        if self._trainer is not None:
            owner = owners(self.clients.sizes, self.trainer.world_size)
            self.federation.owned = [slot for slot, rank in enumerate(owner) if rank == self.trainer.global_rank]

    @override
    def on_fit_start(self) -> None:
        self.original.to(self.device)
        self.clients, self.retained = self.clients.to(self.device), self.retained.to(self.device)

    @override
    def training_step(self, batch: object, batch_idx: int = 0) -> None:
        phase, step = self.locate(self.current_epoch)
        figures = self.carry_out(phase, step)
        for name, value in figures.items():
            self.log(f"unlearn/{phase.name}/{name}", value, batch_size=1)
        if "loss" in figures:
            self.log("train/loss", figures["loss"], prog_bar=True, batch_size=1)  # as FederatedTraining logs it
        self.optimizers().step()  # type: ignore[union-attr] # counts the round: its gradients are zero

    @override
    def on_train_epoch_end(self) -> None:
        if self.current_epoch + 1 == sum(phase.rounds for phase in self.phases(self.request)):
            self.erase_departed()  # before the last checkpoint, which outlives the run

    @override
    def configure_optimizers(self) -> Optimizer:
        return SGD([torch.nn.Parameter(torch.zeros((), device=self.device))], lr=1.0)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["unlearning"] = {
            "request_id": self.request.request_id,
            "method": class_config(self),
            "state": self.method_state(),
            "ledger": self.channel.state(),
            "local_epochs": self.local_epochs,
            "trained_rounds": self.federation.trained_rounds,
        }

    def check_checkpoint(self, checkpoint: dict[str, Any], request: UnlearningRequest) -> None:
        """Refuse to continue what was something else.

        Args:
            checkpoint: of an interrupted run.
            request: what to forget.

        Raises:
            CheckpointMismatchError: it was another method, had other options or another request.
        """
        saved = checkpoint["unlearning"]
        if saved["method"] != class_config(self):
            message = f"resume_ckpt_path: the checkpoint is not of {type(self).__name__} with these options"
            raise CheckpointMismatchError(message)
        if saved["request_id"] != request.request_id:
            message = f"resume_ckpt_path: the checkpoint is of another request, {saved['request_id'][:12]}"
            raise CheckpointMismatchError(message)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_checkpoint(checkpoint, self.request)
        saved = checkpoint["unlearning"]
        self.load_method_state(saved["state"])
        self.channel.load(saved["ledger"])
        self.local_epochs = saved["local_epochs"]
        self.federation.trained_rounds = saved["trained_rounds"]


def unlearn(
    method: UnlearningMethod,
    federation: Federation,
    clients: ClientGraphs,
    retained: ClientGraphs,
    request: UnlearningRequest,
) -> Federation:
    """Run a method without a Trainer.

    Args:
        method: how to unlearn.
        federation: the trained federation; not changed.
        clients: all graphs as they were in training.
        retained: the graphs after the request (:func:`~page_lightning.data.apply_request.apply_request`).
        request: what to forget.

    Returns:
        The unlearned federation.
    """
    method.prepare(federation, clients, retained, request)
    for phase in method.phases(request):
        for step in range(phase.rounds):
            method.carry_out(phase, step)
    return method.result()


def list_methods() -> list[type[UnlearningMethod]]:
    """Every concrete method that is imported, by name."""
    found: set[type[UnlearningMethod]] = set()
    ahead = UnlearningMethod.__subclasses__()
    while ahead:
        cls = ahead.pop()
        ahead += cls.__subclasses__()
        if not inspect.isabstract(cls):
            found.add(cls)
    return sorted(found, key=lambda cls: cls.__name__)


__all__: Sequence[str] = ["ALL_KINDS", "Need", "Phase", "UnlearningMethod", "list_methods", "unlearn"]
