"""The robust membership inference attack (Zarifzadeh et al., ICML 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from page_lightning.metrics.functional.distance import cross_entropy


def relative_log_likelihood(logits: Tensor, retrain: Tensor, y: Tensor, a: float = 0.3) -> Tensor:
    """``log(p(y) / p_world(y))`` of each node, ``[.., N]``.

    ``p_world = ((1 + a) * mean over retrained models of p(y) + (1 - a)) / 2``: the offline form, which makes up for
    reference models that never saw the node.

    Args:
        logits: ``[.., N, C]``.
        retrain: ``[R, N, C]``.
        y: true classes, int64 ``[N]``.
        a: in [0, 1], how much seeing a node is thought to raise ``p(y)``.
    """
    out = (-cross_entropy(retrain, y)).exp().mean(0)
    return -cross_entropy(logits, y) - (((1 + a) * out + (1 - a)) / 2).log()


def rmia(log_ratio: Tensor, population: Tensor) -> Tensor:
    """Share of the population each node beats, ``P_z[ratio(x) / ratio(z) > 1]``, float64 ``[.., N]``.

    Args:
        log_ratio: from ``relative_log_likelihood``, ``[.., N]``.
        population: a set of nodes no model was trained on; the held-out nodes.
    """
    ordered = log_ratio[..., population].sort(-1).values.contiguous()
    return torch.searchsorted(ordered, log_ratio.contiguous()).double() / (ordered.shape[-1] or torch.nan)
