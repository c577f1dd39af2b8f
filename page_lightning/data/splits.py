"""Training, validation and test nodes: OpenFGL's rule for each client and class, or the published split."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from page_lightning.data.source import SPLIT_NAMES, SourceGraph
from page_lightning.data.streams import Stream, generator
from page_lightning.errors import SplitError
from page_lightning.federation.graphs import SplitName

Ratios = tuple[float, float, float]
Masks = dict[SplitName, Tensor]

_CITATION: Ratios = (0.2, 0.4, 0.4)
_WIKIPEDIA: Ratios = (0.48, 0.32, 0.2)
_HETEROPHILOUS: Ratios = (0.5, 0.25, 0.25)
_ARXIV: Ratios = (0.6, 0.2, 0.2)

DEFAULT_RATIOS: Mapping[str, Ratios] = {
    **dict.fromkeys(("Cora", "CiteSeer", "PubMed", "Photo", "Computers", "CS", "Physics", "csbm"), _CITATION),
    **dict.fromkeys(("Chameleon", "Squirrel"), _WIKIPEDIA),
    **dict.fromkeys(
        ("Actor", "Minesweeper", "Tolokers", "Roman-empire", "Amazon-ratings", "Questions"), _HETEROPHILOUS
    ),
    **dict.fromkeys(("ogbn-arxiv", "arxiv-sized"), _ARXIV),
}
"""OpenFGL's shares of training, validation and test nodes, by canonical name of the data set."""

FALLBACK_RATIOS = _CITATION
"""Shares for any other graph."""


def split_nodes(
    y: Tensor, assignment: Tensor, ratios: Sequence[float], seed: int, min_train_per_class: int = 0
) -> Masks:
    """Draw the nodes of each split, for each client and class apart, by OpenFGL's rule.

    Of the `n` shuffled nodes of a class on a client, the first `int(train * n)` are for training, those up to
    `int((train + val) * n)` for validation and those up to `int((train + val + test) * n)` for testing. So with a
    training share of 0.2 a class of fewer than five nodes has none for training, unless `min_train_per_class` says so.

    The draw takes one number for each node from a stream keyed by the seed, so it is the same on every machine, and the
    nodes drawn on one client do not depend on the other clients.

    Args:
        y: Class of each node `[N]`.
        assignment: Client of each node `[N]`.
        ratios: Shares of training, validation and test nodes; each at least 0, together at most 1.
        seed: Seed of the draw, not negative.
        min_train_per_class: Least number of training nodes of a class on a client that has as many.

    Returns:
        Disjoint masks "train", "val" and "test", bool `[N]`.

    Raises:
        SplitError: The shares or another argument make no sense.
    """
    train, val, test = _checked_ratios(ratios)
    if min_train_per_class < 0 or seed < 0:
        msg = f"data.min_train_per_class {min_train_per_class} and data.seed {seed} must not be negative"
        raise SplitError(msg)
    if y.shape != assignment.shape or y.dim() != 1:
        msg = f"labels {list(y.shape)} and clients {list(assignment.shape)} must both have shape [N]"
        raise SplitError(msg)
    num_nodes = y.numel()
    draw = generator(seed, Stream.SPLIT).random(num_nodes)
    cell = assignment.numpy() * (int(y.max()) + 1 if num_nodes else 1) + y.numpy()
    order = np.lexsort((draw, cell))
    _, cell_start, cell_size = np.unique(cell[order], return_index=True, return_counts=True)
    rank = np.empty(num_nodes, np.int64)
    rank[order] = np.arange(num_nodes) - np.repeat(cell_start, cell_size)
    size = np.empty(num_nodes, np.int64)
    size[order] = np.repeat(cell_size, cell_size)

    train_end = np.maximum((train * size).astype(np.int64), np.minimum(min_train_per_class, size))
    val_end = np.maximum(((train + val) * size).astype(np.int64), train_end)
    test_end = np.maximum(np.minimum(((train + val + test) * size).astype(np.int64), size), val_end)
    masks: dict[SplitName, npt.NDArray[np.bool_]] = {
        "train": rank < train_end,
        "val": (rank >= train_end) & (rank < val_end),
        "test": (rank >= val_end) & (rank < test_end),
    }
    return _disjoint({split: torch.from_numpy(mask) for split, mask in masks.items()}, "data.ratios")


def official_masks(graph: SourceGraph, index: int = 0) -> Masks:
    """The published split of a graph.

    Args:
        graph: The graph.
        index: Which one, where several were published.

    Returns:
        Disjoint masks "train", "val" and "test", bool `[N]`.

    Raises:
        SplitError: There is no such split, or it puts a node in two sets.
    """
    if graph.masks is None:
        msg = f"data.split: {graph.name} has no official split; use data.ratios"
        raise SplitError(msg)
    shape = graph.masks["train"].shape
    available = shape[1] if len(shape) == 2 else 1
    if not 0 <= index < available:
        msg = f"data.split_index {index}: {graph.name} has {available} official splits, numbered from 0"
        raise SplitError(msg)
    masks = {split: graph.masks[split].reshape(graph.num_nodes, available)[:, index] for split in SPLIT_NAMES}
    return _disjoint(masks, f"data.source {graph.name}")


def _checked_ratios(ratios: Sequence[float]) -> Ratios:
    if len(ratios) != 3 or not all(math.isfinite(ratio) and ratio >= 0 for ratio in ratios):
        msg = f"data.ratios {list(ratios)} must be three shares of at least 0: training, validation, test"
        raise SplitError(msg)
    if sum(ratios) > 1 + 1e-9:
        msg = f"data.ratios {list(ratios)} sum to {sum(ratios):g}, more than 1"
        raise SplitError(msg)
    return ratios[0], ratios[1], ratios[2]


def _disjoint(masks: Masks, origin: str) -> Masks:
    shared = torch.stack(list(masks.values())).sum(0) > 1
    if shared.any():
        msg = f"{origin}: node {int(shared.nonzero()[0])} is in more than one of {', '.join(masks)}"
        raise SplitError(msg)
    return masks
