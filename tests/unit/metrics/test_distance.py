"""Distances to Retrain against SciPy and plain loops."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from sklearn.metrics import accuracy_score, log_loss

from page_lightning.metrics.functional import (
    accuracy_gap,
    agreement,
    ensemble_floor,
    jensen_shannon,
    kl,
    loss_gap,
    pairwise_kl,
    parameter_distance,
    relative_parameter_change,
    tug_of_war,
)


@pytest.fixture
def logits():
    return torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


def test_divergences_equal_scipy(logits):
    p, q = logits[:2].softmax(-1).numpy()
    np.testing.assert_allclose(kl(logits[0], logits[1]).numpy(), entropy(p, q, axis=1))
    np.testing.assert_allclose(jensen_shannon(logits[0], logits[1]).numpy(), jensenshannon(p, q, axis=1) ** 2)
    expected = [kl(one, logits).mean(1) for one in logits]
    torch.testing.assert_close(pairwise_kl(logits), torch.stack(expected))
    assert not pairwise_kl(logits).diagonal().any()


def test_divergences_stay_finite_for_certain_models():
    sure = torch.tensor([[500.0, 0.0], [0.0, 500.0]])
    assert jensen_shannon(sure, sure.flip(0)).tolist() == pytest.approx([math.log(2)] * 2)
    assert kl(sure, sure.flip(0)).tolist() == [500, 500]


@pytest.mark.parametrize("measure", [kl, jensen_shannon, agreement])
def test_floor_is_the_mean_over_pairs(logits, measure):
    pairs = [measure(logits[i], logits[j]) for i, j in permutations(range(4), 2)]
    torch.testing.assert_close(ensemble_floor(measure, logits), torch.stack(pairs).mean(0))
    assert ensemble_floor(measure, logits[:1]).isnan().all()


def test_gaps_equal_scikit_learn(logits):
    y = torch.arange(9) % 5

    def loss(one):
        return log_loss(y.numpy(), one.softmax(-1).numpy(), labels=range(5))

    def hits(one):
        return accuracy_score(y, one.argmax(-1))

    target, retrain = logits[0], logits[1:]
    assert float(loss_gap(target, retrain, y)) == pytest.approx(loss(target) - np.mean([loss(r) for r in retrain]))
    assert float(accuracy_gap(target, retrain, y)) == pytest.approx(hits(target) - np.mean([hits(r) for r in retrain]))
    sets = [torch.arange(9) < 3, torch.arange(9) >= 3]
    product = 1.0
    for s in sets:
        target_hits, retrain_hits = (accuracy_score(y[s], logits[i, s].argmax(-1)) for i in (0, 1))
        product *= 1 - abs(target_hits - retrain_hits)
    assert float(tug_of_war(target, logits[1], y, sets)) == pytest.approx(product)
    assert tug_of_war(logits[:2], logits[0], y, sets)[0] == 1


def test_distances_of_parameters():
    original = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]]), "steps": torch.tensor(7)}
    retrain = {"a": torch.tensor([0.0, 0.0]), "b": torch.tensor([[0.0]]), "steps": torch.tensor(9)}
    half = {"a": torch.tensor([1.5, 0.0]), "b": torch.tensor([[2.0]]), "steps": torch.tensor(1)}
    assert parameter_distance(original, retrain, original) == 1
    assert parameter_distance(retrain, retrain, original) == 0
    assert parameter_distance(half, retrain, original) == 0.5
    assert relative_parameter_change(half, original) == 0.5
    assert relative_parameter_change(original, original) == 0
