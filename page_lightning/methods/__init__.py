"""Unlearning methods."""

from page_lightning.methods.base import Need, Phase, UnlearningMethod, list_methods, unlearn
from page_lightning.methods.d2dgn import D2DGN
from page_lightning.methods.fed_eraser import FedEraser
from page_lightning.methods.fine_tune import FineTune
from page_lightning.methods.fused import FUSED
from page_lightning.methods.gif import GIF
from page_lightning.methods.gradient_ascent import GradientAscent
from page_lightning.methods.influenced import InfluencedUnlearning
from page_lightning.methods.no_op import NoOp
from page_lightning.methods.page import PAGE
from page_lightning.methods.retrain import Retrain

__all__ = [
    "D2DGN",
    "FUSED",
    "GIF",
    "PAGE",
    "FedEraser",
    "FineTune",
    "GradientAscent",
    "InfluencedUnlearning",
    "Need",
    "NoOp",
    "Phase",
    "Retrain",
    "UnlearningMethod",
    "list_methods",
    "unlearn",
]
