"""The residual influence ratio: linear, and its interval covers what it should."""

import pytest
from synthetic import World

from page_lightning.audit import residual_influence
from page_lightning.metrics.functional import lira_z, mean_z, phi


def ratio(world, target, retrain, original, **options):
    scores = (phi(logits.double(), world.y) for logits in (target, retrain, original))
    return residual_influence(*scores, world.forgotten, world.held_out, **options)


def test_value_is_the_ratio_of_mean_z():
    world = World(1)
    target, retrain, original = world.models(1, 1.0)[0], world.models(6), world.models(5, 2.0)
    near = world.forgotten | world.held_out
    scores = [phi(logits.double(), world.y)[..., near] for logits in (target, retrain, original)]
    sets = world.forgotten[near], world.held_out[near]
    expected = mean_z(lira_z(scores[0], scores[1]), *sets) / mean_z(lira_z(scores[2], scores[1]), *sets).mean()
    assert ratio(world, target, retrain, original).value == pytest.approx(float(expected))


def test_it_is_linear_between_the_ensembles():
    world = World(2)
    retrain, original = (phi(world.models(8, memory).double(), world.y) for memory in (0.0, 2.0))
    for share in (-0.5, 0.0, 0.25, 1.0):
        middle = (1 - share) * retrain.mean(0) + share * original.mean(0)
        found = residual_influence(middle, retrain, original, world.forgotten, world.held_out)
        assert found.value == pytest.approx(share, abs=1e-9)
        assert found.low < share < found.high


@pytest.mark.parametrize(("memory", "truth"), [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)])
def test_interval_covers_the_truth(memory, truth):
    """It covers the model's own seed too, so a fresh retrained model has 0 inside and a fresh original 1."""
    runs = 100
    inside = 0
    for seed in range(runs):
        world = World(500 + seed)
        found = ratio(world, world.models(1, memory)[0], world.models(8), world.models(8, 2.0), samples=300)
        inside += found.contains(truth)
    assert inside >= 85  # nominal 95, few members


def test_interval_is_reproducible_and_none_where_nothing_differs():
    world = World(3)
    target, retrain = world.models(1)[0], world.models(4)
    assert ratio(world, target, retrain, world.models(4, 1.0)).low is not None
    same = ratio(world, retrain[0], retrain, retrain)
    assert same == (None, None, None)
    assert not same.contains(1)
    original = world.models(4, 1.0)
    assert ratio(world, target, retrain, original) == ratio(world, target, retrain, original)
    assert ratio(world, target, retrain, original) != ratio(world, target, retrain, original, seed=1)
