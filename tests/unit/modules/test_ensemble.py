"""Federations trained side by side equal federations trained alone."""

from dataclasses import replace

import pytest
import torch
from tiny import TINY

from page_lightning.backbones import GAT, GCN, MLP, SGC, PyGModule
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.partitioners import Random
from page_lightning.federation.federation import Federation
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.modules.rounds import FederatedRounds


def alone(federation, graphs, seed, rounds):
    member = federation.fresh(replace(federation.recipe, seed=seed))
    trainer = FederatedRounds(member, member.recipe, Channel())
    optimizer = member.recipe.server_optimizer.build(member.server.parameters())
    for number in range(rounds):
        trainer.run(graphs, number, optimizer)
    return member


# without a bias, whose gradient before batch normalisation is nothing but rounding, which Adam makes whole steps of
NORMALISED = PyGModule("GraphSAGE", {"norm": "batch_norm", "bias": False}, hidden_channels=8)


@pytest.mark.parametrize(
    "backbone",
    [GCN(8), GAT(8), SGC(), MLP(8), NORMALISED],
    ids=lambda b: type(b).__name__,
)
@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(optimizer_state="reset", ridge=0.01),
        Recipe(server_optimizer=OptimizerOptions("SGD", 0.7, 0.0, {"momentum": 0.5})),
        Recipe(participation=0.5),
    ],
    ids=["keep", "reset-ridge", "server-momentum", "in-turn"],
)
def test_a_member_equals_a_federation_trained_alone(backbone, recipe):
    data = FederatedGraphDataModule(num_clients=12, partitioner=Random(), ratios=(0.3, 0.3, 0.4), source_args=TINY)
    data.setup()
    federation = Federation.create(backbone, 120, 3, 12, recipe, torch.float64)
    seeds = [0, 5, 9]
    for seed, member in zip(seeds, train_ensemble(federation, data.graphs, seeds, 3), strict=True):
        expected = alone(federation, data.graphs, seed, 3).state_dict()
        for name, tensor in member.state_dict().items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-10, msg=name)


def test_members_differ():
    data = FederatedGraphDataModule(num_clients=3, source_args=TINY)
    data.setup()
    federation = Federation.create(GCN(8), 120, 3, 3, Recipe())
    first, second = train_ensemble(federation, data.graphs, [0, 1], 2)
    assert not torch.allclose(first.server_state()["layers.1.weight"], second.server_state()["layers.1.weight"])
