"""Who trains which client where several processes run, and the one reduction they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, distributed


def owners(cost: Sequence[float], num_processes: int) -> list[int]:
    """The process that owns each client: largest first, each to the process with the least work.

    Args:
        cost: work of each client, for instance its nodes.
        num_processes: how many share it.

    Returns:
        A process number per client; the same everywhere.
    """
    load = [0.0] * num_processes
    owner = [0] * len(cost)
    for client in sorted(range(len(cost)), key=lambda k: (-cost[k], k)):
        owner[client] = min(range(num_processes), key=lambda p: (load[p], p))
        load[owner[client]] += cost[client] + 1e-9
    return owner


@torch.no_grad()
def sum_over_processes(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over processes, in place, with one reduction per data type."""
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    for dtype in sorted({t.dtype for t in tensors}, key=str):
        group = [t for t in tensors if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in group])
        distributed.all_reduce(flat)
        for tensor, part in zip(group, flat.split([t.numel() for t in group]), strict=True):
            tensor.copy_(part.view_as(tensor))
