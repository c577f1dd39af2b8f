"""What the audit measures on every model, calibrated by all the other models of its group.

A *group* is one candidate (the model under test, or an original) together with the ``R`` retrained models. Every
statistic treats the members of a group alike: a member is compared with the ``R`` others. So if the candidate is one
more retrained model, its place among the ``R + 1`` values is uniform, exactly, whatever the distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from page_lightning.metrics.functional import (
    accuracy,
    cross_entropy,
    leave_one_out_moments,
    lira_auc,
    mean_z,
    pairwise_kl,
    phi,
)
from page_lightning.metrics.functional.likelihood import log_density_ratio

_ROUNDING = 1e-7  # in nats, standard deviations or area; logits have 24 bits


class Role(Enum):
    """What a deviation of a statistic can mean.

    Attributes:
        TRACE: forgotten nodes; to the side of the originals it is what is left of the forgotten data.
        DISTANCE: from the other members; it can flag a model but does not tell why.
        KEPT_LESS: nodes that must not change; a smaller value means that the model lost what it should have kept.
        KEPT_MORE: nodes that must not change; a larger value does.
    """

    TRACE = "trace"
    DISTANCE = "distance"
    KEPT_LESS = "kept_less"
    KEPT_MORE = "kept_more"


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of every member of every group.

    Attributes:
        roles: of the ``T`` statistics, by name.
        values: float64 ``[B, R + 1, T]``; the candidate first, then the retrained models.
        resolution: smallest difference that means anything, ``[T]``: one node for an accuracy, else rounding.
    """

    roles: dict[str, Role]
    values: Tensor
    resolution: Tensor

    def having(self, role: Role) -> Tensor:
        """Which statistics have the role, bool ``[T]``."""
        return torch.tensor([each is role for each in self.roles.values()], device=self.values.device)

    def deviations(self) -> Tensor:
        """How far each member lies from the mean of the others, in their standard deviations, ``[B, R + 1, T]``."""
        others = self.values.shape[1] - 1
        centred = self.values - self.values.mean(1, keepdim=True)
        mean = -centred / others
        square = (centred * centred).sum(1, keepdim=True) - centred * centred
        variance = ((square - others * mean * mean) / (others - 1)).clamp(min=0)
        return (centred - mean) / (variance + self.resolution**2).sqrt()


def group_statistics(
    target: Tensor, retrain: Tensor, original: Tensor, y: Tensor, forgotten: Tensor, held_out: Tensor, retained: Tensor
) -> GroupStatistics:
    """Statistics of ``B = 1 + O`` groups: the model under test first, then every original.

    On the forgotten nodes: ``mean_z`` and ``lira_auc`` against held-out nodes, ``t_lr``, ``loss_forgotten``,
    ``kl_forgotten``. On nodes that must not change: ``accuracy``, ``loss`` and ``kl`` on ``retained`` and on
    ``held_out`` ones. ``kl`` is the mean of KL(other member || member). Statistics of an empty set are left out; so is
    ``t_lr`` with fewer than three originals.

    ``t_lr`` needs originals for its second Gaussian. Original ``i`` as candidate is not measured by itself; the model
    under test is measured without original 0, from which doing nothing and most methods start.

    Args:
        target: logits of the model under test ``[N, C]``.
        retrain: ``[R, N, C]``, ``R >= 2``.
        original: ``[O, N, C]``.
        y: true classes, int64 ``[N]``.
        forgotten: bool ``[N]``.
        held_out: bool ``[N]``, nodes no model was trained on.
        retained: bool ``[N]``, nodes that every model was trained on.
    """
    logits = torch.cat([target[None], original, retrain])
    candidates = 1 + len(original)
    retrained = torch.arange(candidates, len(logits), device=logits.device)
    first = torch.arange(candidates, device=logits.device)[:, None]
    group = torch.cat([first, retrained.expand(candidates, -1)], 1)  # [B, R + 1] rows of logits
    found: dict[str, tuple[Role, Tensor, float]] = {}  # with the resolution

    compared = forgotten | held_out
    confidence = phi(logits[:, compared].double(), y[compared])
    asked, never = forgotten[compared], held_out[compared]
    mean, std = leave_one_out_moments(confidence[group])
    z = (confidence[group] - mean) / std
    found["mean_z"] = Role.TRACE, mean_z(z, asked, never if never.any() else None), _ROUNDING
    if never.any():
        found["lira_auc"] = Role.TRACE, lira_auc(z, asked, never), _ROUNDING
    if len(original) > 2:
        mean_o, std_o = leave_one_out_moments(confidence[1:candidates])
        reference = (first - 1).clamp(min=0)  # [B, 1] rows of mean_o
        ratio = log_density_ratio(confidence[group], mean_o[reference], std_o[reference], mean, std)
        found["t_lr"] = Role.TRACE, ratio[..., asked].mean(-1), _ROUNDING
    for name, nodes in (("forgotten", forgotten), ("retained", retained), ("held_out", held_out)):
        if not nodes.any():
            continue
        here, classes, kept = logits[:, nodes], y[nodes], nodes is not forgotten
        loss = cross_entropy(here.double(), classes).mean(-1)
        found[f"loss_{name}"] = Role.KEPT_MORE if kept else Role.TRACE, loss[group], _ROUNDING
        found[f"kl_{name}"] = Role.DISTANCE, _divergence(here, group), _ROUNDING
        if kept:
            found[f"accuracy_{name}"] = Role.KEPT_LESS, accuracy(here, classes)[group], 1 / len(classes)

    roles, values, resolution = zip(*found.values(), strict=True)
    stacked = torch.stack(values, -1)
    return GroupStatistics(dict(zip(found, roles, strict=True)), stacked, stacked.new_tensor(resolution))


def _divergence(logits: Tensor, group: Tensor) -> Tensor:
    """Mean of KL(other || member) over the others of each group, ``[B, R + 1]``."""
    pairs = pairwise_kl(logits)
    inside = pairs[group[:, :, None], group[:, None, :]]  # [B, other, member]
    return inside.sum(1) / (group.shape[1] - 1)
