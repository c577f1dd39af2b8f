"""How much of the forgotten data's influence is left: 0 like Retrain, 1 like doing nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from page_lightning.metrics.functional import moments


class ResidualInfluence(NamedTuple):
    """The residual influence ratio; None where originals and retrained models do not differ at all.

    Attributes:
        value: below 0 where a model forgot more than Retrain.
        low: lower end of the 95 % interval.
        high: upper end.
    """

    value: float | None
    low: float | None
    high: float | None

    def contains(self, value: float) -> bool:
        """Whether ``value`` lies in the interval."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


def residual_influence(
    phi_target: Tensor,
    phi_retrain: Tensor,
    phi_original: Tensor,
    forgotten: Tensor,
    held_out: Tensor,
    samples: int = 1000,
    seed: int = 0,
) -> ResidualInfluence:
    """``(z - mean z of Retrain) / (mean z of the originals - mean z of Retrain)`` of ``mean_z``.

    ``z`` is calibrated by the whole retrain ensemble, so that the mean of Retrain is 0 and the ratio is linear in the
    model's ``phi``: halfway between the ensembles is .5. The interval is a bootstrap over nodes (forgotten and held-out
    ones apart), over the members of both ensembles, and over the seed of the model itself: the scatter of members
    around the mean of their ensemble is added to the model. Without the last, the interval of a retrained model would
    not contain 0.

    Args:
        phi_target: ``phi`` of the model ``[N]``.
        phi_retrain: ``[R, N]``, ``R >= 2``.
        phi_original: ``[O, N]``, ``O >= 2``.
        forgotten: bool ``[N]``.
        held_out: bool ``[N]``, nodes no model was trained on; may be empty, as for a forgotten client.
        samples: bootstrap samples.
        seed: of the bootstrap.
    """
    retrains, originals = len(phi_retrain), len(phi_original)
    compared = forgotten | held_out
    _, std = moments(phi_retrain[:, compared].double())
    models = torch.cat([phi_target[None], phi_retrain, phi_original])[:, compared].double() / std
    generator = torch.Generator(models.device).manual_seed(seed)

    def counts(size: int) -> Tensor:
        """Bootstrap weights ``[1 + samples, size]`` that sum to 1; the first row is the sample itself."""
        drawn = torch.randint(size, (samples, size), device=models.device, generator=generator)
        weights = models.new_ones(1 + samples, size)
        weights[1:] = 0
        weights[1:].scatter_add_(1, drawn, models.new_ones(samples, size))
        return weights / size

    total = models.new_zeros(1 + samples, len(models))  # mean of each model in each sample, up to the calibration
    for sign, nodes in ((1, forgotten[compared]), (-1, held_out[compared])):
        if nodes.any():
            total += sign * counts(int(nodes.sum())) @ models[:, nodes].T
    target, retrain, original = total[:, 0], total[:, 1 : 1 + retrains], total[:, 1 + retrains :]
    scatter = torch.cat([_scatter(retrain), _scatter(original)], 1)
    drawn = torch.randint(scatter.shape[1], (1 + samples, 1), device=models.device, generator=generator)
    noise = scatter.gather(1, drawn).squeeze(1)
    noise[0] = 0
    start = (retrain * counts(retrains)).sum(1)
    end = (original * counts(originals)).sum(1)
    ratio = (target + noise - start) / (end - start)
    if not ratio[0].isfinite():
        return ResidualInfluence(None, None, None)
    low, high = ratio[1:].nanquantile(ratio.new_tensor([0.025, 0.975])).tolist()
    return ResidualInfluence(float(ratio[0]), low, high)


def _scatter(members: Tensor) -> Tensor:
    """Deviations from the mean of an ensemble ``[.., R]``, widened to the variance of a fresh member."""
    size = members.shape[1]
    return (members - members.mean(1, keepdim=True)) * math.sqrt(size / (size - 1))
