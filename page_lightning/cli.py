"""The command line: ``page-lightning fit | validate | test``."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from typing_extensions import override

import page_lightning.backbones
import page_lightning.data.partitioners  # noqa: F401 - short class names resolve once their modules are imported
from page_lightning.callbacks import RoundCheckpoint, RoundProgressBar, RunFiles, SaveConfig
from page_lightning.data import FederatedGraphDataModule
from page_lightning.errors import PageLightningError
from page_lightning.modules import FederatedTraining
from page_lightning.trainer import TRAINER_DEFAULTS, FederatedTrainer

_LOGGER = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "runs", "name": ""}}


class PageParser(LightningArgumentParser):
    """A parser whose errors are one line."""

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        line = " ".join(message.split())
        sys.stderr.write(f"page-lightning: error: {line}\n")
        raise SystemExit(2)


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


def with_packaged_configs(args: Sequence[str]) -> list[str]:
    """Point every ``--config configs/...`` that is not a file here to the file of that name in the package."""
    result: list[str] = []
    for arg in args:
        flag, equals, value = arg.partition("=")
        is_value = bool(result) and result[-1] in {"--config", "-c"} and not equals
        path = Path(value if equals else arg)
        if (is_value or flag == "--config") and path.parts[:1] == ("configs",) and not path.exists():
            packaged = config_folder().joinpath(*path.parts[1:])
            if packaged.is_file():
                arg = f"{flag}={packaged}" if equals else str(packaged)  # noqa: PLW2901
        result.append(arg)
    return result


def main(args: Sequence[str] | None = None) -> Any:  # noqa: ANN401 - the CLI object, for tests
    """Run the command line.

    Args:
        args: arguments after the program's name; by default those of the process.

    Raises:
        SystemExit: with status 2 and one line on standard error where the user can mend the input.
    """
    _quiet_libraries()
    try:
        return PageCLI(with_packaged_configs(sys.argv[1:] if args is None else args))
    except PageLightningError as error:
        sys.stderr.write(f"page-lightning: error: {' '.join(str(error).split())}\n")
        raise SystemExit(2) from error


def _quiet_libraries() -> None:
    for message in (".*does not have many workers.*", ".*Sparse.*beta state.*", ".*Sparse invariant checks.*"):
        warnings.filterwarnings("ignore", message)
    warnings.filterwarnings("ignore", module="lightning.pytorch.cli")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


__all__ = ["Namespace", "PageCLI", "main"]
