"""Rounds with and without some data are two ordinary runs, and steps stop where validation nodes suffer."""

from dataclasses import replace

import pytest
import torch

from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.modules.counterfactual import FRACTIONS, CounterfactualRounds, harmless_fraction
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.modules.rounds import FederatedRounds

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}


@pytest.fixture(scope="module")
def job():
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=SMALL)
    data.setup()
    federation = train_ensemble(Federation.create(GCN(8), 120, 3, 3, Recipe()), data.graphs, [0], 3)[0]
    request = RequestOptions("client", clients=[1]).build(data.graphs, "csbm")
    return federation, apply_request(data.graphs, request), data.graphs


def test_equals_two_plain_runs(job):
    federation, without, having = job
    twins = CounterfactualRounds(federation, without, having, 2, Channel())
    for number in range(3):
        twins.run(number)
    ends = []
    for graphs in (without, having):
        alone = federation.clone()
        recipe = replace(alone.recipe, local_epochs=2)
        rounds = FederatedRounds(alone, recipe, Channel(), dropout=False)
        for number in range(3):
            server = OptimizerOptions("SGD", lr=1.0, weight_decay=0.0).build(alone.server.parameters())
            rounds.run(graphs, number, server)
        ends.append((alone.server_state(), alone.client_state()))
    (server, clients), ((mine, my_clients), (theirs, their_clients)) = twins.difference(), ends
    for name in server:
        torch.testing.assert_close(server[name], mine[name] - theirs[name], rtol=0, atol=0)
        torch.testing.assert_close(clients[name], my_clients[name] - their_clients[name], rtol=0, atol=0)
        assert server[name].abs().sum() > 0


def test_without_a_request_nothing_differs(job):
    federation, _, having = job
    twins = CounterfactualRounds(federation, having, having, 1, Channel())
    twins.run(0)
    for change in (*twins.difference()[0].values(), *twins.difference()[1].values()):
        assert not change.any()


def test_resumed_rounds_go_on(job):
    federation, without, having = job
    whole, first = (CounterfactualRounds(federation, without, having, 1, Channel()) for _ in range(2))
    whole.run(0), whole.run(1)
    first.run(0)
    second = CounterfactualRounds(federation, without, having, 1, Channel())
    second.load(first.state())
    second.run(1)
    for name, change in whole.difference()[0].items():
        assert torch.equal(change, second.difference()[0][name]), name


def test_the_federation_is_left_alone(job):
    federation, without, having = job
    before = {name: tensor.clone() for name, tensor in federation.state_dict().items()}
    CounterfactualRounds(federation, without, having, 1, Channel()).run(0)
    for name, tensor in federation.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(
    ("losses", "fraction"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0], 1.0),
        ([1.2, 1.1, 1.05, 1.0, 1.0], 0.5),
        ([9.0, 9.0, 9.0, 1.11, 1.0], 0.0),
        ([9.0, 9.0, 1.1, 1.05, 1.0], 0.25),
        ([0.0, 0.0, 0.0, 0.0, 0.0], 1.0),
        ([float("nan"), 5.0, 5.0, 1.0, 1.0], 0.125),
    ],
)
def test_harmless_fraction(losses, fraction):
    assert len(losses) == len(FRACTIONS)
    assert harmless_fraction(torch.tensor(losses), 0.1001) == fraction
