"""The shadow federation behind the paper's membership attack (Olatunji, Nejdl and Khosla 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from page_lightning.audit.queries import Queries
from page_lightning.federation.federation import Federation
from page_lightning.metrics.functional import fit_shadow_attack
from page_lightning.modules.ensemble import train_ensemble

_SHADOW_SEED = 15_485_863


@dataclass(frozen=True, eq=False)
class ShadowAttack:
    """An attack that maps posteriors to membership scores, and the nodes it is judged on.

    Args:
        network: from posteriors ``[.., C]`` to log-odds ``[.., 1]``.
        non_members: test nodes of the clients with forgotten data: neither target nor shadow saw them, bool ``[N]``.
        control: half of ``non_members``, played as members in the negative control, bool ``[N]``.
    """

    network: nn.Module
    non_members: Tensor
    control: Tensor

    @torch.no_grad()
    def scores(self, logits: Tensor) -> Tensor:
        """Membership score of each node, ``[.., N]``."""
        scores: Tensor = self.network(logits.softmax(-1)).squeeze(-1)
        return scores


def train_shadow(federation: Federation, queries: Queries) -> ShadowAttack:
    """Train a shadow federation on half of the clients' validation nodes and the attack on its posteriors.

    The other half are its non-members, so members and non-members follow one sampling rule, and both are disjoint from
    the target's training and test nodes.

    Args:
        federation: gives architecture, recipe and rounds.
        queries: graphs and node sets.
    """
    graphs = queries.clients
    half = torch.from_numpy(
        np.random.default_rng([federation.recipe.seed, _SHADOW_SEED]).random(graphs.num_nodes) < 0.5
    )
    half = half.to(graphs.device)
    members, others = graphs.masks["val"] & half, graphs.masks["val"] & ~half
    world = graphs.with_masks({"train": members, "val": others, "test": graphs.masks["test"]})
    (shadow,) = train_ensemble(
        federation, world, [federation.recipe.seed + _SHADOW_SEED], max(federation.trained_rounds, 1)
    )
    run = shadow.run_server if queries.departed else shadow.run_clients
    with torch.no_grad():
        posteriors = run(world.flow(federation.server.num_hops, federation.dtype))[1].softmax(-1)
    network = fit_shadow_attack(posteriors[members], posteriors[others], seed=federation.recipe.seed)
    non_members = queries.held_out & graphs.masks["test"]
    return ShadowAttack(network, non_members, non_members & half)
