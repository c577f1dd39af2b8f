"""The base of figures that need every node before they can be computed."""

from __future__ import annotations

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class NodeMetric(Metric):
    """Keeps one row per node and joins the rows of all processes.

    A process that owns nothing still calls ``update``, with empty tensors, or does not call it at all where all its
    rows are vectors.

    Args:
        states: names of the tensors to keep, each with nodes first.
    """

    full_state_update = False

    def __init__(self, *states: str) -> None:
        super().__init__()
        for name in states:
            self.add_state(name, [], dist_reduce_fx="cat")

    def keep(self, **rows: Tensor) -> None:
        """Add the rows of some nodes, ``[n, ..]`` per state."""
        for name, tensor in rows.items():
            getattr(self, name).append(tensor.detach())

    def joined(self, name: str) -> Tensor:
        """All rows of a state, ``[N, ..]``."""
        return dim_zero_cat(getattr(self, name))
