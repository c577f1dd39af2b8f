"""Deletion requests: what they say, how they are drawn, read and checked."""

from page_lightning.data.requests.checks import check_request
from page_lightning.data.requests.context import RequestContext
from page_lightning.data.requests.options import RequestOptions
from page_lightning.data.requests.reading import read_request
from page_lightning.data.requests.request import FeatureTarget, RequestKind, UnlearningRequest

__all__ = [
    "FeatureTarget",
    "RequestContext",
    "RequestKind",
    "RequestOptions",
    "UnlearningRequest",
    "check_request",
    "read_request",
]
