"""page-lightning: federated graph learning that can forget.

``import page_lightning`` alone is light: the names below load PyTorch when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from page_lightning.backbones import GAT, GCN, GIN, MLP, SGC, Backbone, GraphSAGE, PyGModule
    from page_lightning.data import FederatedGraphDataModule, Partitioner
    from page_lightning.data.requests import RequestOptions, UnlearningRequest
    from page_lightning.methods import (
        D2DGN,
        FUSED,
        GIF,
        PAGE,
        FedEraser,
        FineTune,
        GradientAscent,
        InfluencedUnlearning,
        NoOp,
        Retrain,
        UnlearningMethod,
        unlearn,
    )
    from page_lightning.modules import FederatedTraining, OptimizerOptions
    from page_lightning.report import Report
    from page_lightning.trainer import FederatedTrainer
    from page_lightning.unlearning import AuditOptions

_MODULES = {
    "backbones": ("GAT", "GCN", "GIN", "MLP", "SGC", "Backbone", "GraphSAGE", "PyGModule"),
    "data": ("FederatedGraphDataModule", "Partitioner"),
    "data.requests": ("RequestOptions", "UnlearningRequest"),
    "methods": (
        "D2DGN",
        "FUSED",
        "GIF",
        "PAGE",
        "FedEraser",
        "FineTune",
        "GradientAscent",
        "InfluencedUnlearning",
        "NoOp",
        "Retrain",
        "UnlearningMethod",
        "unlearn",
    ),
    "modules": ("FederatedTraining", "OptimizerOptions"),
    "report": ("Report",),
    "trainer": ("FederatedTrainer",),
    "unlearning": ("AuditOptions",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


__all__ = [
    "D2DGN",
    "FUSED",
    "GAT",
    "GCN",
    "GIF",
    "GIN",
    "MLP",
    "PAGE",
    "SGC",
    "AuditOptions",
    "Backbone",
    "FedEraser",
    "FederatedGraphDataModule",
    "FederatedTrainer",
    "FederatedTraining",
    "FineTune",
    "GradientAscent",
    "GraphSAGE",
    "InfluencedUnlearning",
    "NoOp",
    "OptimizerOptions",
    "Partitioner",
    "PyGModule",
    "Report",
    "RequestOptions",
    "Retrain",
    "UnlearningMethod",
    "UnlearningRequest",
    "unlearn",
]
