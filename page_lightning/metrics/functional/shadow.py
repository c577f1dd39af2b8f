"""The shadow-model attack on node classifiers (Olatunji, Nejdl and Khosla 2021), and the control it needs."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor, nn

from page_lightning.metrics.functional.ranking import hanley_mcneil_se, rank_auc


class ShadowControl(NamedTuple):
    """Outcome of the negative control.

    Attributes:
        auc: area under the ROC curve between two sets no model was trained on.
        standard_error: of ``auc`` if the sets were alike.
        passed: whether ``auc`` is .5 within two standard errors.
    """

    auc: float
    standard_error: float
    passed: bool


def fit_shadow_attack(
    members: Tensor, non_members: Tensor, *, epochs: int = 100, batch_size: int = 32, lr: float = 0.01, seed: int = 0
) -> nn.Sequential:
    """Train the attack on a shadow model's posteriors; it maps ``[.., C]`` to log-odds of membership ``[.., 1]``.

    As the authors' code: perceptron C-100-50-2 with ReLU and Xavier weights, Adam, and a softmax in front of the
    cross-entropy's own. Their reported "AUROC" is the balanced accuracy of hard decisions; take ``rank_auc`` of the
    scores instead. The global random state is left alone.

    Args:
        members: posteriors of the shadow model's training nodes, ``[P, C]``.
        non_members: posteriors of nodes it never saw, ``[Q, C]``.
        epochs: passes over ``P + Q`` nodes.
        batch_size: nodes per step.
        lr: of Adam.
        seed: of weights and batches.
    """
    x = torch.cat([members, non_members]).detach()
    y = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    y[: len(members)] = 1
    generator = torch.Generator(x.device).manual_seed(seed)
    layers = [_linear(rows, columns, x, generator) for rows, columns in ((x.shape[1], 100), (100, 50), (50, 2))]
    network = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(network.parameters(), lr, foreach=True)
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(x), device=x.device, generator=generator)
            for start in range(0, len(x), batch_size):
                batch = order[start : start + batch_size]
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(x[batch]).softmax(-1), y[batch]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    log_odds = nn.Linear(2, 1, bias=False, device="meta")
    log_odds.weight = nn.Parameter(x.new_tensor([[-1.0, 1.0]]))
    return nn.Sequential(OrderedDict(attack=network, log_odds=log_odds)).requires_grad_(False).eval()


def _linear(rows: int, columns: int, like: Tensor, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(rows, columns, device="meta", dtype=like.dtype).to_empty(device=like.device)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def shadow_attack(
    members: Tensor,
    non_members: Tensor,
    target: Tensor,
    *,
    epochs: int = 100,
    batch_size: int = 32,
    lr: float = 0.01,
    seed: int = 0,
) -> Tensor:
    """Scores that increase with ``P(member)`` for a target model's posteriors, ``[..]``.

    Args:
        members: posteriors of the shadow model's training nodes, ``[P, C]``.
        non_members: posteriors of nodes it never saw, ``[Q, C]``.
        target: posteriors to attack, ``[.., C]``.
        epochs: passes over the shadow's nodes.
        batch_size: nodes per step.
        lr: of Adam.
        seed: of weights and batches.
    """
    attack = fit_shadow_attack(members, non_members, epochs=epochs, batch_size=batch_size, lr=lr, seed=seed)
    scores: Tensor = attack(target).squeeze(-1)
    return scores


def shadow_control(first: Tensor, second: Tensor) -> ShadowControl:
    """Negative control: the attack between two sets of nodes no model was trained on.

    Draw ``first`` by the rule of the members and ``second`` by the rule of the non-members, and query both as those
    are queried. What the attack finds here is the sampling rule, not membership: unless the control passes, its area
    on members says nothing. (The published protocol fails it: class-balanced members on their own subgraph against
    random nodes on the full graph give .65.)

    Args:
        first: attack scores ``[P]``.
        second: attack scores ``[Q]``.
    """
    auc = float(rank_auc(first, second))
    error = float(hanley_mcneil_se(0.5, first.numel(), second.numel()))
    return ShadowControl(auc, error, abs(auc - 0.5) <= 2 * error)
