"""Accuracy, macro-F1 and AUROC of every client in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class ClientClassification(Metric):
    """Classification figures per client and their node-weighted mean.

    One confusion matrix per client serves accuracy and macro-F1; AUROC keeps the scores and ranks them exactly.

    Args:
        client_nodes: nodes of each client, the weights of the means, ``K`` numbers.
        num_classes: ``C``.
        auroc: also keep scores for AUROC (one class against the rest, mean over the classes of a client's nodes).
    """

    full_state_update = False
    confusion: Tensor
    scores: list[Tensor]
    labels: list[Tensor]
    owners: list[Tensor]

    def __init__(self, client_nodes: Sequence[int], num_classes: int, *, auroc: bool = False) -> None:
        super().__init__()
        self.client_nodes, self.num_classes, self.auroc = tuple(client_nodes), num_classes, auroc
        self.num_clients = len(self.client_nodes)
        blank = torch.zeros(self.num_clients, num_classes, num_classes, dtype=torch.int64)
        self.add_state("confusion", blank, dist_reduce_fx="sum")
        if auroc:
            for name in ("scores", "labels", "owners"):
                self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, logits: Tensor, labels: Tensor, clients: Tensor) -> None:
        """Add nodes.

        Args:
            logits: ``[N, C]``.
            labels: int64 ``[N]``.
            clients: slot of each node, int64 ``[N]``.
        """
        code = (clients * self.num_classes + labels) * self.num_classes + logits.argmax(1)
        self.confusion += torch.bincount(code, minlength=self.confusion.numel()).view_as(self.confusion)
        if self.auroc:
            self.scores.append(logits.softmax(1))
            self.labels.append(labels)
            self.owners.append(clients)

    def per_client(self) -> dict[str, Tensor]:
        """Each figure per client, ``[K]``; NaN for a client without nodes."""
        confusion = self.confusion.double()
        count = confusion.sum((1, 2))
        hits = confusion.diagonal(dim1=1, dim2=2)
        f1 = 2 * hits / (confusion.sum(1) + confusion.sum(2))  # NaN where a class is neither there nor predicted
        figures = {"accuracy": hits.sum(1) / count, "macro_f1": f1.nanmean(1)}
        if self.auroc:
            labels, owners = dim_zero_cat(self.labels), dim_zero_cat(self.owners)
            figures["auroc"] = grouped_auroc(dim_zero_cat(self.scores), labels, owners, self.num_clients)
        return figures

    def compute(self) -> dict[str, Tensor]:
        """Means over the clients where a figure is defined, weighted by all their nodes (as OpenFGL); scalars."""
        count = torch.tensor(self.client_nodes, dtype=torch.float64, device=self.confusion.device)
        means = {}
        for name, values in self.per_client().items():
            weight = count * ~values.isnan()
            means[name] = (values.nan_to_num() * weight).sum() / weight.sum()
        return means


def grouped_auroc(scores: Tensor, labels: Tensor, groups: Tensor, num_groups: int) -> Tensor:
    """Exact one-against-rest AUROC within each group, mean over the classes that occur there, ``[G]``.

    By ranks with ties averaged, hence the same for any increasing transformation of the scores. NaN for a group with
    fewer than two classes.

    Args:
        scores: ``[N, C]``.
        labels: int64 ``[N]``.
        groups: int64 ``[N]``.
        num_groups: ``G``.
    """
    nodes, classes = scores.shape
    count = torch.bincount(groups, minlength=num_groups).double()
    start = count.cumsum(0) - count
    total, defined = scores.new_zeros(num_groups, dtype=torch.float64), torch.zeros_like(count)
    for label in range(classes):
        by_score = torch.argsort(scores[:, label], stable=True)
        order = by_score[torch.argsort(groups[by_score], stable=True)]
        score, group, positive = scores[order, label], groups[order], labels[order] == label
        new = torch.ones(nodes, dtype=torch.bool, device=scores.device)
        new[1:] = (score[1:] != score[:-1]) | (group[1:] != group[:-1])
        tie = new.cumsum(0) - 1
        size = torch.bincount(tie, minlength=1).double()
        rank = (size.cumsum(0) - (size - 1) / 2)[tie] - start[group]
        positives = torch.bincount(group[positive], minlength=num_groups).double()
        negatives = count - positives
        rank_sum = torch.zeros_like(count).index_add_(0, group[positive], rank[positive])
        area = (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
        known = (positives > 0) & (negatives > 0)
        total += torch.where(known, area, 0)
        defined += known
    return total / torch.where(defined > 0, defined, torch.nan)
