"""The Trainer with the settings that a federation needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import WandbLogger

import page_lightning.strategies  # noqa: F401 - registers "client_parallel"
from page_lightning.audit.ensemble import purge_ensembles
from page_lightning.callbacks.history_keeper import HistoryKeeper
from page_lightning.checkpoint import read_checkpoint
from page_lightning.configuration import build_class, class_config
from page_lightning.data.apply_request import apply_request
from page_lightning.data.datamodule import FederatedGraphDataModule
from page_lightning.data.requests import RequestOptions, UnlearningRequest
from page_lightning.errors import (
    CheckpointMismatchError,
    ConfigurationError,
    RequestError,
    UnsupportedRequestError,
)
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.processes import owners
from page_lightning.methods import PAGE, Need, UnlearningMethod, unlearn
from page_lightning.modules.federated_training import FederatedTraining
from page_lightning.report import Report, write_figures
from page_lightning.unlearning import AuditOptions, Outcome, Stopwatch, environment, judge

TRAINER_DEFAULTS: dict[str, Any] = {
    "num_sanity_val_steps": 0,  # a sanity check would score the server before round 0
    "use_distributed_sampler": False,  # it would repeat clients
    "inference_mode": False,  # attacks and influence functions take gradients in test steps
    "enable_model_summary": False,
    "log_every_n_steps": 1,
    "devices": 1,
}


class FederatedTrainer(Trainer):
    """A Trainer whose epochs are communication rounds: ``max_epochs`` is the number of rounds.

    Args:
        kwargs: of ``lightning.pytorch.Trainer``.

    Raises:
        ConfigurationError: ``max_epochs`` is negative.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        for name, value in TRAINER_DEFAULTS.items():
            kwargs.setdefault(name, value)
        rounds = kwargs.get("max_epochs")
        if rounds is not None and rounds < 0:
            message = f"trainer.max_epochs is {rounds}; it is the number of rounds, at least 0"
            raise ConfigurationError(message)
        super().__init__(**kwargs)

    def unlearn(
        self,
        model: FederatedTraining,
        datamodule: FederatedGraphDataModule,
        method: UnlearningMethod | None = None,  # no instance: its options would go over to whatever class is named
        request: RequestOptions = RequestOptions(),  # noqa: B008 - frozen
        compare: Sequence[UnlearningMethod] = (),
        trained_ckpt_path: str | None = None,
        resume_ckpt_path: str | None = None,
        output_dir: str = "unlearned",
        audit: AuditOptions = AuditOptions(),  # noqa: B008 - frozen
    ) -> Report:
        """Make a trained federation forget, and show the evidence.

        Without a trained checkpoint the federation is trained first. Then the method runs, and the original, no-op,
        Retrain, the method and every compared method are judged by the same figures. The folder gets ``report.json``,
        ``table.md``, ``figures/``, ``request.json`` (the only place with ids) and ``unlearned.ckpt``, which ``test``
        and a further ``unlearn`` take.

        Args:
            model: the federation; afterwards it holds the unlearned models.
            datamodule: the clients' graphs; afterwards without the request's data.
            method: how to unlearn; :class:`~page_lightning.methods.PAGE` by default.
            request: what to forget.
            compare: other methods to judge beside it.
            trained_ckpt_path: checkpoint of ``fit``, or ``unlearned.ckpt`` of an earlier request.
            resume_ckpt_path: checkpoint of an interrupted run of this method.
            output_dir: folder for the results.
            audit: the reference that the report is judged by.

        Returns:
            The report.
        """
        if Path(output_dir).exists() and not Path(output_dir).is_dir():
            message = f"output_dir {output_dir} is a file"
            raise ConfigurationError(message)
        datamodule.setup("unlearn")
        clients = datamodule.graphs
        wanted = request.build(clients, datamodule.source.name, poison=datamodule.poison_request)
        retrains = audit.size(clients)
        given = (method or PAGE(), *compare)
        method, *others = (build_class(class_config(each)) for each in given)  # nothing is kept in theirs
        for each in (method, *others):
            unsupported = sorted(wanted.kinds - each.supports)
            if unsupported:
                raise UnsupportedRequestError(type(each).__name__, unsupported)
        retained = apply_request(clients, wanted)
        if resume_ckpt_path is not None:
            method.check_checkpoint(read_checkpoint(resume_ckpt_path, "resume_ckpt_path", "unlearning"), wanted)
        if trained_ckpt_path is None:
            self._require_history((method, *others), wanted)
            for each in (method, *others):
                each.check_backbone(model.backbone, wanted)
        if trained_ckpt_path is not None:
            model.restore(read_checkpoint(trained_ckpt_path, "trained_ckpt_path"), clients)
        else:
            self.fit(model, datamodule=datamodule)
        original = model.models
        outcome = self._run_method(method, original, clients, retained, wanted, resume_ckpt_path)
        device = self.strategy.root_device
        original.to(device)
        clients, retained = clients.to(device), retained.to(device)
        outcome.federation.to(device)
        outcomes = [outcome]
        for other in others:
            watch = Stopwatch()
            original.owned = self._owned(clients)
            federation = unlearn(other.to(device), original, clients, retained, wanted)
            federation.gather()
            outcomes.append(Outcome.of(other, federation, watch))
        report = judge(
            outcomes, original, clients, retained, wanted, datamodule, retrains, environment(model.recipe.seed)
        )
        self._finish(report, model, datamodule, outcome.federation, wanted, retained.to("cpu"), Path(output_dir))
        return report

    def verify(
        self,
        datamodule: FederatedGraphDataModule,
        before: str,
        after: str,
        request: RequestOptions,
        output_dir: str = "verified",
        audit: AuditOptions = AuditOptions(),  # noqa: B008 - frozen
    ) -> Report:
        """Judge an unlearned checkpoint against the one it was made from, whoever made it.

        Data and recipe come from the checkpoint of before. The exit status is 0 for INDISTINGUISHABLE, 3 for RESIDUAL
        or DAMAGED, 4 for INCONCLUSIVE.

        Args:
            datamodule: gives the folders of data and cache.
            before: checkpoint of the trained federation.
            after: checkpoint of the unlearned federation.
            request: what was to be forgotten; ``request.path`` names the file.
            output_dir: folder for the report.
            audit: the reference that the report is judged by.

        Returns:
            The report; its row ``unlearned`` is the checkpoint of after.
        """
        trained, unlearned = read_checkpoint(before, "before"), read_checkpoint(after, "after")
        data = datamodule.for_checkpoint(trained, Path(before))
        data.setup("verify")
        if request.path is None and request.kind != "poison":
            message = "request.path: verify needs the file of the request that was carried out (request.json)"
            raise RequestError(message)
        clients = data.graphs
        wanted = request.build(clients, data.source.name, poison=data.poison_request)
        retained = apply_request(clients, wanted)
        models = []
        for option, checkpoint in (("before", trained), ("after", unlearned)):
            model = FederatedTraining(**checkpoint["hyper_parameters"])
            try:
                model.restore(checkpoint, clients)
            except CheckpointMismatchError as error:
                message = f"{option}: {error}"
                raise CheckpointMismatchError(message) from error
            models.append(model.models)
        original, candidate = models
        report = judge(
            [Outcome("unlearned", candidate)], original, clients, retained, wanted, data, audit.size(clients),
            environment(original.recipe.seed),
        )  # fmt: skip
        if self.is_global_zero:
            report.write(Path(output_dir))
            write_figures(report, Path(output_dir) / "figures")
        return report

    def _require_history(self, methods: Sequence[UnlearningMethod], request: UnlearningRequest) -> None:
        """Refuse, before training, methods that need models of earlier rounds where none will be kept."""
        keepers = [each for each in self.callbacks if isinstance(each, HistoryKeeper)]  # type: ignore[attr-defined]
        for method in methods:
            if Need.HISTORY in method.needs_for(request) and not any(keeper.keeps for keeper in keepers):
                name = type(method).__name__
                message = f"method {name} needs models of earlier rounds: switch on {method.history_option}"
                raise ConfigurationError(message)

    def _owned(self, clients: ClientGraphs) -> list[int]:
        owner = owners(clients.sizes, self.world_size)
        return [slot for slot, rank in enumerate(owner) if rank == self.global_rank]

    def _run_method(
        self,
        method: UnlearningMethod,
        original: Federation,
        clients: ClientGraphs,
        retained: ClientGraphs,
        request: UnlearningRequest,
        resume_ckpt_path: str | None,
    ) -> Outcome:
        """Run a method as rounds of this Trainer."""
        watch = Stopwatch()
        method.prepare(original, clients, retained, request)
        rounds = sum(phase.rounds for phase in method.phases(request))
        if rounds:
            loop = self.fit_loop
            for progress in (
                loop.epoch_progress,
                loop.epoch_loop.batch_progress,
                loop.epoch_loop.manual_optimization.optim_step_progress,
            ):
                progress.reset()
            loop.max_epochs = rounds
            self.fit(method, train_dataloaders=[0], ckpt_path=resume_ckpt_path)
        federation = method.result()
        federation.gather()
        return Outcome.of(method, federation, watch)

    def _finish(
        self,
        report: Report,
        model: FederatedTraining,
        datamodule: FederatedGraphDataModule,
        federation: Federation,
        request: UnlearningRequest,
        retained: ClientGraphs,
        folder: Path,
    ) -> None:
        """Write everything, and leave model and data as they are after the request."""
        earlier = [Path(path) for path in datamodule.forgotten]
        names = [f"request-{place}.json" for place in range(1, len(earlier) + 1)] + ["request.json"]
        if self.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            for path, name in zip(earlier, names, strict=False):
                (folder / name).write_text(path.read_text())
            request.write(folder / "request.json")
            report.write(folder)
            figures = write_figures(report, folder / "figures")
            for logger in self.loggers:
                if isinstance(logger, WandbLogger):
                    logger.log_table("report", columns=report.header, data=report.cells())
                    for path in figures:  # W&B shows images of one key at one size
                        logger.log_image(f"figures/{path.stem}", [str(path)])
        if request.clients and self.is_global_zero:  # for good: kept rounds and cached references
            purge_ensembles(datamodule.cache)
            if federation.history is not None:
                federation.history.erase(list(request.clients))
        federation.history = None  # its rounds saw the data; what comes after must not rewind to them
        datamodule.forget([str(folder / name) for name in names], retained)
        model.adopt(federation, names)
        self.test(model, datamodule=datamodule, verbose=False)
        self.save_checkpoint(folder / "unlearned.ckpt", weights_only=True)
