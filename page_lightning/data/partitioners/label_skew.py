"""Dirichlet label skew: each class is spread over the clients in random shares, whatever the edges."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from page_lightning.data.partitioners.base import Assignment, Compat, Partitioner
from page_lightning.data.partitioners.repair import fill_empty_clients
from page_lightning.data.source import SourceGraph
from page_lightning.data.streams import Stream, generator
from page_lightning.errors import PartitionError

TRIES = 100
MIN_CLIENT_SIZE = 5


class LabelSkew(Partitioner):
    """Dirichlet label skew (Yurochkin et al., 2019): for each class, client shares are drawn from `Dirichlet(alpha)`.

    A client that already holds `N / K` nodes gets no more. Drawn up to 100 times until every client has five nodes;
    then the draw with the largest smallest client stays, and an empty client gets half of the largest one.

    Args:
        alpha: Concentration; small is more skewed.
        compat: "openfgl" raises after 100 draws, where OpenFGL exits. Its draws are not seeded, so sizes agree in
            distribution only.

    Raises:
        PartitionError: `alpha` is not positive; with `compat="openfgl"`, no draw gave every client five nodes.
    """

    def __init__(self, alpha: float = 10.0, compat: Compat | None = None) -> None:
        if not 0 < alpha < float("inf"):
            msg = f"data.partitioner LabelSkew: alpha {alpha} must be positive and finite"
            raise PartitionError(msg)
        self.alpha = alpha
        self.compat = compat

    @override
    def assign(self, graph: SourceGraph, num_clients: int, seed: int) -> Tensor:
        rng = generator(seed, Stream.PARTITION)
        y = graph.y.numpy()
        best, best_size = np.zeros(len(y), np.int64), -1
        for _ in range(TRIES):
            assignment = self._draw(y, graph.num_classes, num_clients, rng)
            smallest = int(np.bincount(assignment, minlength=num_clients).min())
            if smallest > best_size:
                best, best_size = assignment, smallest
            if best_size >= MIN_CLIENT_SIZE:
                break
        else:
            if self.compat == "openfgl":
                msg = (
                    f"data.num_clients {num_clients}: none of {TRIES} draws of LabelSkew gave every client "
                    f"{MIN_CLIENT_SIZE} nodes; ask for fewer clients or a larger alpha"
                )
                raise PartitionError(msg)
        return torch.from_numpy(fill_empty_clients(best, num_clients, np.argsort(y, kind="stable")))

    def _draw(
        self, y: npt.NDArray[np.int64], num_classes: int, num_clients: int, rng: np.random.Generator
    ) -> Assignment:
        """One draw of all classes."""
        assignment = np.empty(len(y), np.int64)
        sizes = np.zeros(num_clients, np.int64)
        for c in range(num_classes):
            nodes = rng.permutation(np.flatnonzero(y == c))
            share = rng.dirichlet(np.full(num_clients, self.alpha)) * (sizes < len(y) / num_clients)
            if share.sum() <= 0:  # a tiny alpha gave everything to full clients
                share = (sizes < len(y) / num_clients).astype(np.float64)
            if not len(nodes):
                continue
            ends = (np.cumsum(share / share.sum()) * len(nodes)).astype(np.int64)[:-1]
            assignment[nodes] = np.searchsorted(ends, np.arange(len(nodes)), side="right")
            sizes += np.bincount(assignment[nodes], minlength=num_clients)
        return assignment
