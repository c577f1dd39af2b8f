"""The merged configuration of a run, in its folder and on dashboards."""

from __future__ import annotations

import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger
from typing_extensions import override


class SaveConfig(SaveConfigCallback):
    """Writes ``config.yaml``, which reruns to the same numbers, and sends it to every logger but the CSV one."""

    @override
    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        text = self.parser.dump(self.config, skip_none=False)
        for logger in trainer.loggers:
            if not isinstance(logger, CSVLogger):
                logger.log_hyperparams({"config": yaml.safe_load(text)})
