"""The command line: ``page-lightning fit | validate | test``."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from typing_extensions import override

import page_lightning.backbones
import page_lightning.data.partitioners  # noqa: F401 - short class names resolve once their modules are imported
from page_lightning.callbacks import RoundCheckpoint, RoundProgressBar, RunFiles, SaveConfig
from page_lightning.checkpoint import read_checkpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.errors import ConfigurationError, PageLightningError
from page_lightning.modules import FederatedTraining
from page_lightning.parser import PageParser, fail
from page_lightning.trainer import TRAINER_DEFAULTS, FederatedTrainer

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

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        super().parse_arguments(parser, args)
        path = self.config[self.config.subcommand].get("ckpt_path")
        self._checkpoint = read_checkpoint(path) if path else None

    @override
    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
        except (ImportError, ValueError, MisconfigurationException) as error:
            message = f"trainer: {error}"
            raise ConfigurationError(message) from error

    def before_fit(self) -> None:
        """Load the data and look for mistakes before a run's folder is made."""
        self.datamodule.setup()
        sizes = None if self._checkpoint is None else self._checkpoint["federation"]["sizes"]
        self.model.check(self.datamodule.graphs, self.trainer.world_size, sizes)

    def before_validate(self) -> None:
        """The same before scores; they need a trained federation."""
        if self._checkpoint is None:
            sys.stderr.write("page-lightning: warning: without --ckpt_path the models are untrained\n")
        self.before_fit()

    before_test = before_validate

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
        return {"fit": skip, "validate": skip, "test": skip}


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
    ):
        warnings.filterwarnings("ignore", message)
    warnings.filterwarnings("ignore", module=r"lightning\.pytorch\.cli")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


__all__ = ["PageCLI", "main"]
