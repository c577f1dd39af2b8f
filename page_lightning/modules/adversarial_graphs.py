"""The adversarial graph: where the original and the unlearned model disagree most (PAGE Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer
from typing_extensions import override

from page_lightning.backbones.base import Backbone
from page_lightning.federation.dense import DenseFlow
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.modules.stage import Stage, run_stage

Divergence = Literal["ce", "kl"]


class AdversarialGraphGenerator(Stage):
    """One graph for each of ``B`` pairs of models, all at once; one step is one ascent step.

    Ascends ``divergence(original, unlearned) - penalty * |A - A_init|`` in a symmetric adjacency and in features within
    a box round their start.

    Args:
        backbone: a built backbone.
        originals: the pairs' first models, ``[B, ...]`` by name.
        unlearned: the pairs' second models.
        x: initial features ``[B, N, F]``.
        adjacency: initial 0/1 adjacency ``[B, N, N]``, symmetric without self-loops.
        epsilon: largest change of each feature, a number or ``[B, 1, F]``.
        penalty: ``lambda``, on the mean change of the adjacency (on its sum where ``literal``).
        flips: undirected edges changed in the end, ``K``.
        divergence: ``ce`` as in the paper, or ``kl``, which does not reward a merely unsure original.
        literal: Algorithm 1 exactly as printed: logits start at the 0/1 adjacency, which makes the penalty swamp the
            attack, and the flips are taken entry by entry, without symmetry or a free diagonal.
        lr: learning rate of Adam.
    """

    def __init__(
        self,
        backbone: Backbone,
        originals: Mapping[str, Tensor],
        unlearned: Mapping[str, Tensor],
        x: Tensor,
        adjacency: Tensor,
        epsilon: float | Tensor = 0.1,
        penalty: float = 0.1,
        flips: int = 5,
        divergence: Divergence = "ce",
        literal: bool = False,
        lr: float = 0.01,
    ) -> None:
        super().__init__()
        self._backbone = (backbone,)
        self.originals, self.unlearned = dict(originals), dict(unlearned)
        self.x_init, self.adjacency_init = x, adjacency
        self.epsilon = torch.as_tensor(epsilon, dtype=x.dtype, device=x.device)
        self.penalty, self.flips, self.divergence, self.literal = penalty, flips, divergence, literal
        self.x = nn.Parameter(x.clone())
        self.logits = nn.Parameter(adjacency.clone() if literal else (2 * adjacency - 1) * 3)
        self._optimizers = [OptimizerOptions("Adam", lr, 0.0).build([self.x, self.logits])]

    @property
    @override
    def stage_optimizers(self) -> list[Optimizer]:
        return self._optimizers

    def adjacency(self) -> Tensor:
        """The relaxed adjacency ``[B, N, N]``: sigmoid of the logits, symmetric; zero diagonal unless literal."""
        soft = self.logits.sigmoid()
        soft = (soft + soft.transpose(1, 2)) / 2
        if self.literal:
            return soft
        return soft * (1 - torch.eye(soft.shape[1], dtype=soft.dtype, device=soft.device))

    def features(self) -> Tensor:
        """Features clipped to the box ``[B, N, F]``."""
        return self.x_init + (self.x - self.x_init).clamp(min=-self.epsilon, max=self.epsilon)

    def disagreement(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """The divergence between the pairs' predictions on some graphs, mean over nodes, ``[B]``."""
        flow = DenseFlow(x, adjacency, self._backbone[0].num_hops)
        first, second = (
            functional_call(self._backbone[0], models, (flow,))[1] for models in (self.originals, self.unlearned)
        )
        log_p, log_q = first.log_softmax(1), second.log_softmax(1)
        per_node = -(log_p.exp() * log_q).sum(1)
        if self.divergence == "kl":
            per_node = per_node + (log_p.exp() * log_p).sum(1)
        mean: Tensor = per_node.view(x.shape[0], -1).mean(1)
        return mean

    @override
    def training_step(self, batch: object = None, batch_idx: int = 0) -> Tensor:
        adjacency = self.adjacency()
        gain = self.disagreement(self.features(), adjacency)
        change = (adjacency - self.adjacency_init).abs()
        cost = change.sum((1, 2)) if self.literal else change.mean((1, 2))
        self.report("disagreement", gain.mean())
        return -(gain - self.penalty * cost).sum()

    @torch.no_grad()
    def graphs(self) -> tuple[Tensor, Tensor]:
        """Final features ``[B, N, F]`` and 0/1 adjacency ``[B, N, N]``."""
        if self.literal:
            change = (self.logits - self.adjacency_init).abs().flatten(1)
            chosen = change.topk(self.flips, 1).indices
            final = self.logits.flatten(1).clone()
            final.scatter_(1, chosen, (1 - self.adjacency_init.flatten(1)).gather(1, chosen))
            return self.features(), (final.view_as(self.logits) > 0.5).to(self.x.dtype)
        nodes = self.logits.shape[1]
        row, column = torch.triu_indices(nodes, nodes, 1, device=self.x.device)
        change = (self.adjacency() - self.adjacency_init).abs()[:, row, column]
        chosen = change.topk(min(self.flips, len(row)), 1).indices
        upper = self.adjacency_init[:, row, column].clone()
        upper.scatter_(1, chosen, 1 - upper.gather(1, chosen))
        final = torch.zeros_like(self.adjacency_init)
        final[:, row, column] = upper
        return self.features(), final + final.transpose(1, 2)


def attack(generator: AdversarialGraphGenerator, steps: int, tolerance: float = 1e-4) -> int:
    """Run a generator until it converges.

    Args:
        generator: what to run.
        steps: ascent steps at most.
        tolerance: stop when ten steps change the mean disagreement by less than this share.

    Returns:
        Steps taken.
    """
    block, last = 10, float("inf")
    for done in range(0, steps, block):
        run_stage(generator, min(block, steps - done))
        now = float(generator.reported["disagreement"])
        if abs(now - last) <= tolerance * abs(now):
            return min(done + block, steps)
        last = now
    return steps


def random_graphs(
    count: int,
    nodes: int,
    mean: Tensor,
    degree: Tensor,
    generator: torch.Generator,
    deviation: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Starting graphs: features with given marginals, edges with a given mean degree.

    Args:
        count: ``B``.
        nodes: ``N``.
        mean: of each feature, ``[B, F]``.
        degree: mean degree, ``[B]``.
        generator: of the draws, on the device of ``mean``.
        deviation: of each feature ``[B, F]`` for Gaussian features; none draws 0/1 features.

    Returns:
        Features ``[B, N, F]`` and symmetric 0/1 adjacency ``[B, N, N]`` without self-loops.
    """
    shape = (count, nodes, mean.shape[1])
    if deviation is None:
        draw = torch.rand(shape, generator=generator, device=mean.device, dtype=mean.dtype)
        x = (draw < mean.unsqueeze(1)).to(mean.dtype)
    else:
        draw = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
        x = mean.unsqueeze(1) + deviation.unsqueeze(1) * draw
    chance = (degree / max(nodes - 1, 1)).clamp(max=1).view(-1, 1, 1)
    noise = torch.rand((count, nodes, nodes), generator=generator, device=mean.device, dtype=mean.dtype)
    upper = (noise < chance).to(mean.dtype).triu(1)
    return x, upper + upper.transpose(1, 2)
