"""Does a model still show that an edge was there? The edge-level attack."""

from __future__ import annotations

import torch
from torch import Tensor

from page_lightning.metrics.functional.ranking import rank_auc

_TRIES = 100


def link_auc(logits: Tensor, edges: Tensor, non_edges: Tensor) -> Tensor:
    """Area under the ROC curve of the posteriors' correlation, edges against non-edges, float64 ``[..]``.

    The unsupervised StealLink attack (He et al. 2021, attack 0). On homophilous graphs it must be compared with
    ``class_matched_non_edges``, and even then it rarely tells a retrained model from one that saw the edges (Cora, 10 %
    of the edges: .60 both): ``t_lr`` over the end points does.

    Args:
        logits: ``[.., N, C]``.
        edges: forgotten edges, int64 ``[2, E]``.
        non_edges: int64 ``[2, Q]``.
    """
    return rank_auc(posterior_correlation(logits, edges), posterior_correlation(logits, non_edges))


def posterior_correlation(logits: Tensor, pairs: Tensor) -> Tensor:
    """Correlation over classes of two nodes' posteriors, ``[.., E]``: the score of ``link_auc``.

    Args:
        logits: ``[.., N, C]``.
        pairs: of nodes, int64 ``[2, E]``.
    """
    posterior = logits.softmax(-1)
    centred = torch.nn.functional.normalize(posterior - posterior.mean(-1, keepdim=True), dim=-1)
    return (centred[..., pairs[0], :] * centred[..., pairs[1], :]).sum(-1)


def class_matched_non_edges(edges: Tensor, graph: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    """One pair of nodes per edge that is not an edge and joins the same two classes, int64 ``[2, Q]``, ``Q <= E``.

    An edge is left without a partner where its two classes are almost fully joined.

    Args:
        edges: int64 ``[2, E]``.
        graph: all pairs that must not be drawn, the forgotten ones included, in either direction, int64 ``[2, *]``.
        y: classes, int64 ``[N]``.
        seed: of the drawing.
    """
    nodes = len(y)
    generator = torch.Generator(y.device).manual_seed(seed)
    order = y.argsort(stable=True)
    size = torch.bincount(y)
    start = size.cumsum(0) - size
    taken = torch.cat([graph[0] * nodes + graph[1], graph[1] * nodes + graph[0]])
    classes = y[edges]
    found = torch.zeros_like(edges)
    open_ = torch.arange(edges.shape[1], device=y.device)
    for _ in range(_TRIES):
        wanted = classes[:, open_]
        draw = torch.rand(wanted.shape, dtype=torch.float64, device=y.device, generator=generator)
        found[:, open_] = order[start[wanted] + (draw * size[wanted]).long()]
        u, v = found[:, open_]
        open_ = open_[(u == v) | torch.isin(u * nodes + v, taken)]
        if not open_.numel():
            break
    keep = torch.ones(edges.shape[1], dtype=torch.bool, device=y.device)
    keep[open_] = False
    return found[:, keep]
