"""A linear map whose weight is held input by output, the order in which sparse features read it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Linear(nn.Module):
    """Parameters of ``x W + b``, initialised as ``torch.nn.Linear``.

    Args:
        in_channels: rows of ``W``.
        out_channels: columns of ``W``.
        bias: whether there is a ``b``.
    """

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True) -> None:
        super().__init__()
        bound = in_channels**-0.5
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))
        self.bias: Any = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound)) if bias else None
