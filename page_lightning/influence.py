"""Which clients a request reaches through shared knowledge: similarity of class prototypes (PAGE, step 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from page_lightning.errors import ConfigurationError
from page_lightning.prototypes import Prototypes


@dataclass(frozen=True)
class InfluenceRule:
    """How clients are chosen as influenced.

    Args:
        rule: ``threshold``: similarity of at least ``value``; ``top_k``: the ``value`` most similar ones; ``quantile``:
            those at or above this quantile of similarities; ``all``.
        value: of the rule.
        center: subtract the mean prototype first; without it all ReLU embeddings look alike.
    """

    rule: Literal["threshold", "top_k", "quantile", "all"] = "threshold"
    value: float = 0.0
    center: bool = True

    def __post_init__(self) -> None:
        """Check the value.

        Raises:
            ConfigurationError: it does not fit the rule.
        """
        if (self.rule == "top_k" and (self.value < 1 or self.value != int(self.value))) or (
            self.rule == "quantile" and not 0 <= self.value <= 1
        ):
            message = f"method.influence.value is {self.value}, which does not fit the rule '{self.rule}'"
            raise ConfigurationError(message)

    def choose(self, similarity: Tensor, candidates: Tensor) -> Tensor:
        """Which clients each unlearning client influences.

        Args:
            similarity: ``[U, K]``; NaN where two clients share no class.
            candidates: clients that may be chosen, bool ``[U, K]``.

        Returns:
            bool ``[U, K]``.
        """
        known = candidates & ~similarity.isnan()
        score = similarity.masked_fill(~known, -torch.inf)
        if self.rule == "all":
            return candidates
        if self.rule == "threshold":
            return known & (score >= self.value)
        if self.rule == "top_k":
            count = min(int(self.value), score.shape[1])
            best = score.topk(count, 1).indices
            return known & torch.zeros_like(known).scatter(1, best, True)
        level = torch.stack([
            row[ok].quantile(self.value) if ok.any() else row.new_tensor(torch.inf)
            for row, ok in zip(score, known, strict=True)
        ])  # fmt: skip
        return known & (score >= level[:, None])


def prototype_similarity(asking: Prototypes, others: Prototypes, *, center: bool) -> Tensor:
    """Mean over shared classes of the cosine between prototypes, ``[U, K]``; NaN without a shared class.

    Args:
        asking: of what is forgotten, ``[U, C, d]``.
        others: of every client, ``[K, C, d]``.
        center: subtract the mean of all clients' prototypes from both.
    """
    a, b = asking.mean, others.mean
    if center:
        middle = b[others.present].mean(0)
        a, b = a - middle, b - middle
    cosine = torch.einsum("ucd,kcd->ukc", _unit(a), _unit(b))
    shared = (asking.present[:, None] & others.present[None]).to(cosine.dtype)
    total = shared.sum(2)
    return (cosine * shared).sum(2) / torch.where(total > 0, total, torch.nan)


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)
