"""LightningModules: the federation and the stages of its methods."""

from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.modules.federated_training import FederatedTraining
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.stage import Stage, run_stage

__all__ = ["FederatedTraining", "LocalTraining", "OptimizerOptions", "Stage", "run_stage"]
