"""The command line: ``page-lightning fit | validate | test | unlearn | verify``."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from rich.console import Console
from typing_extensions import override

from page_lightning.audit import Verdict
from page_lightning.callbacks import HistoryKeeper, RoundCheckpoint, RoundProgressBar, RunFiles, SaveConfig
from page_lightning.checkpoint import read_checkpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.errors import ConfigurationError, PageLightningError
from page_lightning.modules import FederatedTraining
from page_lightning.parser import PageParser, condense, fail
from page_lightning.report import Report
from page_lightning.trainer import TRAINER_DEFAULTS, FederatedTrainer

EXIT_STATUS = {Verdict.INDISTINGUISHABLE: 0, Verdict.RESIDUAL: 3, Verdict.DAMAGED: 3, Verdict.INCONCLUSIVE: 4}
"""How ``verify`` ends; 2 is a mistake in the input."""

_LOGGER = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "runs", "name": ""}}


class PageCLI(LightningCLI):
    """``LightningCLI`` over a federation: an epoch is a communication round."""

    def __init__(self, args: Sequence[str] | None = None) -> None:
        super().__init__(
            FederatedTraining,
            FederatedGraphDataModule,
            save_config_callback=SaveConfig,
            save_config_kwargs={"overwrite": True},
            trainer_class=FederatedTrainer,
            trainer_defaults={**TRAINER_DEFAULTS, "max_epochs": 50, "logger": _LOGGER},
            seed_everything_default=False,
            auto_configure_optimizers=False,
            parser_class=PageParser,
            parser_kwargs={"description": "Federated graph learning that can forget."},
            args=list(args) if args is not None else None,
        )

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RoundCheckpoint, "checkpoint")
        parser.add_lightning_class_args(RoundProgressBar, "progress_bar")
        parser.add_lightning_class_args(RunFiles, "run_files")
        parser.add_lightning_class_args(HistoryKeeper, "history")

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        super().parse_arguments(parser, args)
        options = self.config[self.config.subcommand]
        name = "trained_ckpt_path" if self.config.subcommand == "unlearn" else "ckpt_path"
        path = options.get(name)
        self._checkpoint = read_checkpoint(path, name) if path else None
        if path and self._checkpoint is not None:
            if self.config.subcommand == "unlearn":  # LightningCLI does the same for ckpt_path
                recipe = {"unlearn": {"model": self._checkpoint["hyper_parameters"]}}
                self.config = self.parser.parse_object(recipe, self.config)
            requests = self._checkpoint["federation"]["requests"]
            if requests and not options.data.forgotten:
                self.config[self.config.subcommand].data.forgotten = [str(Path(path).parent / r) for r in requests]

    @override
    def before_instantiate_classes(self) -> None:
        options = self.config[self.config.subcommand]
        label_wandb_runs(options, self.config.subcommand)
        if options.trainer.enable_progress_bar is False:  # the Trainer would refuse the bar that is there
            options.progress_bar.enabled, options.trainer.enable_progress_bar = False, None

    @override
    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
        except (ImportError, ValueError, MisconfigurationException) as error:
            known = "Does not validate against" in str(error)  # what a class says about its own options
            raise ConfigurationError(condense(str(error)) if known else f"trainer: {error}") from error

    def before_fit(self) -> None:
        """Load the data and look for mistakes before a run's folder is made; ``fit`` continues a ``fit``."""
        if self._checkpoint is not None and self.subcommand == "fit" and "optimizer_states" not in self._checkpoint:
            message = "ckpt_path: an unlearned checkpoint cannot be trained on; unlearn it again with --method FineTune"
            raise ConfigurationError(message)
        self.check_data()

    def check_data(self) -> None:
        """Load the data and look for mistakes before a run's folder is made."""
        self.datamodule.setup()
        sizes = None if self._checkpoint is None else self._checkpoint["federation"]["sizes"]
        self.model.check(self.datamodule.graphs, self.trainer.world_size, sizes)

    def before_validate(self) -> None:
        """The same before scores; they need a trained federation."""
        if self._checkpoint is None:
            sys.stderr.write("page-lightning: warning: without --ckpt_path the models are untrained\n")
        self.check_data()

    before_test = before_validate

    @property
    def federated_trainer(self) -> FederatedTrainer:
        """The Trainer, by its own type."""
        return cast(FederatedTrainer, self.trainer)

    def before_unlearn(self) -> None:
        """Look for mistakes in the options before anything is trained."""
        self.check_data()

    def unlearn(self, **options: Any) -> None:  # noqa: ANN401
        """Make a federation forget, and print the table."""
        report = self.federated_trainer.unlearn(**options)
        if self.trainer.is_global_zero:
            print_report(report, Path(options["output_dir"]))

    def verify(self, **options: Any) -> None:  # noqa: ANN401
        """Judge a checkpoint, print the table and end with the verdict's status."""
        del options["model"]  # the checkpoints say what the models are
        report = self.federated_trainer.verify(**options)
        print_report(report, Path(options["output_dir"]))
        audit = report.row("unlearned").audit
        raise SystemExit(EXIT_STATUS[Verdict.INCONCLUSIVE if audit is None else audit.verdict])

    def validate(self, **options: Any) -> None:  # noqa: ANN401
        """Score the validation nodes; :class:`RunFiles` prints the figures."""
        self.trainer.validate(verbose=False, **options)

    def test(self, **options: Any) -> None:  # noqa: ANN401
        """Score the test nodes; :class:`RunFiles` prints the figures."""
        self.trainer.test(verbose=False, **options)

    @staticmethod
    @override
    def subcommands() -> dict[str, set[str]]:
        skip = {"model", "dataloaders", "train_dataloaders", "val_dataloaders", "datamodule", "verbose", "weights_only"}
        done = {"model", "datamodule"}
        return {"fit": skip, "validate": skip, "test": skip, "unlearn": done, "verify": done}


def print_report(report: Report, folder: Path) -> None:
    """Show a report's table on the terminal."""
    console = Console()
    console.print(report.table())
    for line in report.flagged():
        console.print(line, highlight=False)
    console.print(f"report, figures and checkpoint in {folder}", highlight=False)


def label_wandb_runs(options: Namespace, verb: str) -> None:
    """Give runs on a W&B dashboard a group (data set and clients), a job type (the verb) and tags."""
    data, loggers = options.data, options.trainer.logger
    method = options.get("method")
    tags = [data.source, data.partitioner.class_path.rpartition(".")[2]]
    if method is not None:
        tags.append(method.class_path.rpartition(".")[2])
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        if logger and not isinstance(logger, bool) and logger.class_path.endswith("WandbLogger"):
            given = logger.get("dict_kwargs") or {}
            labels = {"group": f"{data.source}-{data.num_clients}", "job_type": verb, "tags": tags}
            logger["dict_kwargs"] = {**labels, **given}


def config_folder() -> Path:
    """The configuration files that come with the package."""
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find_configs(args: Sequence[str]) -> list[str]:
    """Check the files of ``--config``; ``configs/...`` that is not a file here is the file of that name in the package.

    Args:
        args: command-line arguments.

    Returns:
        The arguments with paths to existing files.

    Raises:
        ConfigurationError: a file is missing or is not a YAML mapping.
    """
    result: list[str] = []
    for arg in args:
        flag, _, value = arg.partition("=")
        if result and result[-1] in {"--config", "-c"}:
            result.append(str(_config_file(arg)))
        elif flag in {"--config", "-c"} and value:
            result.append(f"{flag}={_config_file(value)}")
        else:
            result.append(arg)
    return result


def _config_file(name: str) -> Path:
    path = Path(name)
    if path.parts[:1] == ("configs",) and not path.exists():
        path = config_folder().joinpath(*path.parts[1:])
    if not path.is_file():
        message = f"--config {name}: no such file"
        raise ConfigurationError(message)
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"--config {name}: not YAML ({error})"
        raise ConfigurationError(message) from error
    if not isinstance(content, dict):
        message = f"--config {name}: holds no options, such as 'data:' with 'source: Cora' below it"
        raise ConfigurationError(message)
    return path


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        args: arguments after the program's name; by default those of the process.

    Raises:
        SystemExit: with status 2 and one line on standard error where the user can mend the input.
    """
    _quiet_libraries()
    try:
        PageCLI(find_configs(sys.argv[1:] if args is None else args))
    except (PageLightningError, PermissionError) as error:
        fail(str(error))


def _quiet_libraries() -> None:
    """Hide what libraries tell their own developers."""
    for message in (
        r".*does not have many workers.*",
        r".*Sparse.*beta state.*",
        r".*Sparse invariant checks.*",
        r".*isinstance\(treespec, LeafSpec\).*",
        r".*recommended to use `self\.log\(.*sync_dist=True.*",
    ):
        warnings.filterwarnings("ignore", message)
    warnings.filterwarnings("ignore", module=r"lightning\.pytorch\.cli")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


__all__ = ["PageCLI", "main"]
