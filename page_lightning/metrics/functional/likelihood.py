"""Scores calibrated node by node against retrained models: what a model knows that a retrained one would not."""

from __future__ import annotations

import torch
from torch import Tensor

from page_lightning.metrics.functional.ranking import rank_auc


def phi(logits: Tensor, y: Tensor) -> Tensor:
    """Logit-scaled confidence in the true class, ``log p_y - log(1 - p_y)``, ``[.., N]`` (Carlini et al. 2022, sec. V).

    As ``logit_y - logsumexp`` of the other logits, which stays exact where ``p_y`` rounds to 0 or 1. Infinite with
    one class.

    Args:
        logits: ``[.., N, C]``.
        y: true classes, int64 ``[N]``.
    """
    index = y.expand(logits.shape[:-1]).unsqueeze(-1)
    others = logits.scatter(-1, index, -torch.inf)
    return logits.gather(-1, index).squeeze(-1) - others.logsumexp(-1)


def moments(ensemble: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each node over an ensemble, variances shrunk halfway to their mean, ``[.., N]``.

    With few models a variance per node is too noisy to divide by; the mean over nodes is added in equal parts. One
    model has no spread: its standard deviation is set to 1, so that a z score is a plain difference.

    Args:
        ensemble: ``phi`` of ``R`` models, ``[.., R, N]``.
    """
    mean = ensemble.mean(-2)
    if ensemble.shape[-2] == 1:
        return mean, torch.ones_like(mean)
    return mean, _shrunk(ensemble.var(-2))


def leave_one_out_moments(ensemble: Tensor) -> tuple[Tensor, Tensor]:
    """For every model the ``moments`` of all the others, each ``[.., R, N]``, in one pass over the sums.

    Args:
        ensemble: ``phi`` of ``R > 1`` models, ``[.., R, N]``.
    """
    others = ensemble.shape[-2] - 1
    centred = ensemble - ensemble.mean(-2, keepdim=True)
    mean = -centred / others  # the centred values sum to zero
    if others == 1:
        std = torch.ones_like(mean)
    else:
        square = (centred * centred).sum(-2, keepdim=True) - centred * centred
        std = _shrunk(((square - others * mean * mean) / (others - 1)).clamp(min=0))
    return mean + ensemble.mean(-2, keepdim=True), std


def _shrunk(variance: Tensor) -> Tensor:
    shrunk = (variance + variance.mean(-1, keepdim=True)) / 2
    return shrunk.sqrt().clamp(min=torch.finfo(variance.dtype).tiny)


def lira_z(phi_target: Tensor, phi_retrain: Tensor) -> Tensor:
    """How far a model lies from retrained ones at each node, in their standard deviations, ``[.., N]``.

    The offline likelihood-ratio attack (Carlini et al. 2022) with retrained models as the "out" world and variances
    shrunk by half (see ``moments``). With ``R = 1`` the plain difference. The variances are shrunk over the ``N`` nodes
    given: pass the nodes you compare (forgotten and held out), not the whole graph.

    Args:
        phi_target: ``phi`` of the models under test, ``[.., N]``.
        phi_retrain: ``phi`` of the retrained models, ``[R, N]``.
    """
    mean, std = moments(phi_retrain)
    return (phi_target - mean) / std


def lira_auc(z: Tensor, forgotten: Tensor, held_out: Tensor) -> Tensor:
    """Area under the ROC curve of ``z``, forgotten against held-out nodes, float64 ``[..]``; .5 for Retrain.

    Blind to damage: a destroyed model also gives about .5. Read it beside ``rms_z``.

    Args:
        z: from ``lira_z``, ``[.., N]``.
        forgotten: a set of nodes.
        held_out: nodes no model was trained on.
    """
    return rank_auc(z[..., forgotten], z[..., held_out])


def mean_z(z: Tensor, forgotten: Tensor, held_out: Tensor | None = None) -> Tensor:
    """Mean of ``z`` over the forgotten nodes minus its mean over held-out ones, ``[..]``; 0 for Retrain.

    For a forgotten client take the client's nodes as ``forgotten`` and no held-out ones: all of its nodes move.

    Args:
        z: from ``lira_z``, ``[.., N]``.
        forgotten: a set of nodes.
        held_out: nodes no model was trained on; none leaves the first mean alone.
    """
    mean = z[..., forgotten].mean(-1)
    return mean if held_out is None else mean - z[..., held_out].mean(-1)


def rms_z(z: Tensor, nodes: Tensor) -> Tensor:
    """Root mean square of ``z`` over a set of nodes, ``[..]``; about 1 for Retrain, large for a damaged model.

    Args:
        z: from ``lira_z``, ``[.., N]``.
        nodes: a set of nodes.
    """
    return z[..., nodes].square().mean(-1).sqrt()


def t_lr(phi_target: Tensor, phi_retrain: Tensor, phi_original: Tensor) -> Tensor:
    """Log likelihood ratio of each node, original against retrained ensemble, ``[.., N]``.

    ``log N(phi; mu_o, s_o^2) - log N(phi; mu_r, s_r^2)``, the efficacy game of RULI (2025) and U-LiRA (Hayes et al.
    2025) with a fixed forgotten set. The mean over the forgotten nodes (for a client: over the client's nodes; for
    edges: over their end points) is positive where a model is like the originals. Compare it with the value of
    retrained models: nodes are correlated, so it is no likelihood of the set, and far from both ensembles its sign
    means little.

    Args:
        phi_target: ``phi`` of the models under test, ``[.., N]``.
        phi_retrain: ``phi`` of the retrained models, ``[R, N]`` with ``R > 1``.
        phi_original: ``phi`` of the models trained on all data, ``[O, N]`` with ``O > 1``.
    """
    mean_r, std_r = moments(phi_retrain)
    mean_o, std_o = moments(phi_original)
    return log_density_ratio(phi_target, mean_o, std_o, mean_r, std_r)


def log_density_ratio(x: Tensor, mean_a: Tensor, std_a: Tensor, mean_b: Tensor, std_b: Tensor) -> Tensor:
    """``log N(x; a) - log N(x; b)``, element by element."""
    return ((x - mean_b) / std_b).square() / 2 - ((x - mean_a) / std_a).square() / 2 + std_b.log() - std_a.log()
