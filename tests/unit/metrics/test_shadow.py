"""The shadow attack learns what separates the shadow's sets, repeats, and its control catches a confounded protocol."""

import warnings

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from page_lightning.metrics.functional import fit_shadow_attack, rank_auc, shadow_attack, shadow_control


def posteriors(confidence, nodes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(nodes, 4, generator=generator)
    label = torch.arange(nodes) % 4
    logits[torch.arange(nodes), label] += confidence
    return logits.softmax(-1)


@pytest.fixture(scope="module")
def attack():
    return fit_shadow_attack(posteriors(3, 160, 0), posteriors(1, 160, 1), epochs=20)


def test_attack_is_as_good_as_scikit_learns_perceptron(attack):
    members, others = posteriors(3, 300, 2), posteriors(1, 300, 3)
    area = float(rank_auc(attack(members).squeeze(-1), attack(others).squeeze(-1)))
    x = torch.cat([posteriors(3, 160, 0), posteriors(1, 160, 1)]).numpy()
    warnings.simplefilter("ignore", ConvergenceWarning)
    reference = MLPClassifier((100, 50), learning_rate_init=0.01, batch_size=32, max_iter=20, random_state=0)
    reference.fit(x, [1] * 160 + [0] * 160)
    theirs = [torch.tensor(reference.predict_proba(part.numpy())[:, 1]) for part in (members, others)]
    assert area == pytest.approx(float(rank_auc(*theirs)), abs=0.03)
    assert area > 0.75


def test_attack_repeats_and_leaves_the_global_stream_alone():
    members, others = posteriors(3, 40, 0), posteriors(1, 40, 1)
    target = torch.stack([posteriors(2, 7, 2), posteriors(2, 7, 3)])
    before = torch.get_rng_state()
    with torch.no_grad():  # as inside a validation hook
        first = shadow_attack(members, others, target, epochs=2)
    assert first.shape == (2, 7)
    assert torch.equal(first, shadow_attack(members, others, target, epochs=2))
    assert not torch.equal(first, shadow_attack(members, others, target, epochs=2, seed=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_control_passes_for_like_sets_and_fails_for_another_class_mix(attack):
    scores = attack(posteriors(1, 800, 5)).squeeze(-1)
    alike = shadow_control(scores[:400], scores[400:])
    assert alike.passed
    assert alike.auc == float(rank_auc(scores[:400], scores[400:]))
    surer = attack(posteriors(2, 400, 6)).squeeze(-1)  # never trained either: drawn by another rule
    assert not shadow_control(surer, scores[400:]).passed


def test_control_fails_by_chance_in_one_of_twenty():
    generator = torch.Generator().manual_seed(0)
    failed = sum(not shadow_control(*torch.randn(2, 100, generator=generator)).passed for _ in range(400))
    assert 6 <= failed <= 34  # binomial(400, .046), mean 18, four standard errors
