"""Areas by ranks against scikit-learn and brute force; intervals against theory."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torchmetrics.classification import BinaryAUROC

from page_lightning.metrics.functional import auc_interval, hanley_mcneil_se, rank_auc, tpr_at_fpr

scores = st.lists(st.integers(-4, 4), min_size=1, max_size=30)


def labelled(positive, negative):
    return [1] * len(positive) + [0] * len(negative), torch.cat([positive, negative]).numpy()


@given(scores, scores)
@settings(max_examples=80, deadline=None)
def test_area_and_tpr_equal_scikit_learn_with_many_ties(positive, negative):
    positive, negative = torch.tensor(positive, dtype=torch.float32), torch.tensor(negative, dtype=torch.float32)
    assert float(rank_auc(positive, negative)) == pytest.approx(roc_auc_score(*labelled(positive, negative)), abs=1e-12)
    fpr, tpr, _ = roc_curve(*labelled(positive, negative), drop_intermediate=False)
    for limit in (0.0, 0.05, 0.2, 0.5):
        expected = tpr[fpr <= limit + 1e-9].max()
        assert float(tpr_at_fpr(positive, negative, limit)) == pytest.approx(expected, abs=1e-7)


def test_area_is_batched_over_models():
    positive, negative = torch.randn(2, 3, 20), torch.randn(2, 3, 31)
    areas, rates = rank_auc(positive, negative), tpr_at_fpr(positive, negative, 0.1)
    assert areas.shape == rates.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert areas[i, j] == rank_auc(positive[i, j], negative[i, j])
            assert rates[i, j] == tpr_at_fpr(positive[i, j], negative[i, j], 0.1)


def test_scale_does_not_matter_here_but_does_in_torchmetrics():
    generator = torch.Generator().manual_seed(0)
    positive, negative = (torch.randn(400, generator=generator) + shift for shift in (0.3, 0.0))
    labels, both = torch.tensor(labelled(positive, negative)[0]), torch.cat([positive, negative])
    truth = roc_auc_score(labels, both)
    wrong = [float(BinaryAUROC()(both * scale, labels)) for scale in (1, 100)]
    ours = [float(rank_auc(positive * scale, negative * scale)) for scale in (1e-6, 1, 100, 1e6)]
    assert ours == pytest.approx([truth] * 4, abs=1e-12)
    assert abs(wrong[1] - truth) > 1e-3  # a sigmoid, then saturation


def test_empty_sets_have_no_area():
    some, none = torch.ones(3), torch.ones(0)
    for pair in ((some, none), (none, some)):
        assert math.isnan(rank_auc(*pair))
        assert math.isnan(tpr_at_fpr(*pair))
        assert all(math.isnan(end) for end in auc_interval(*pair))


def test_hanley_mcneil_by_simulation_and_by_the_published_table():
    assert float(hanley_mcneil_se(0.5, 54, 1083)) == pytest.approx(0.040, abs=5e-4)
    assert float(hanley_mcneil_se(0.5, 5, 1000)) == pytest.approx(0.130, abs=1e-3)
    generator = torch.Generator().manual_seed(1)
    positive, negative = (torch.empty(4000, n).exponential_(generator=generator) for n in (40, 90))
    spread = rank_auc(2 * positive, negative)  # exponential scores are the formula's own assumption
    assert float(hanley_mcneil_se(2 / 3, 40, 90)) == pytest.approx(float(spread.std()), rel=0.05)


def test_bootstrap_interval_is_as_wide_as_theory_and_reproducible():
    generator = torch.Generator().manual_seed(2)
    positive, negative = torch.randn(60, generator=generator) + 0.4, torch.randn(300, generator=generator)
    low, high = auc_interval(positive, negative)
    area = float(rank_auc(positive, negative))
    assert low < area < high
    assert (high - low) / (2 * 1.96) == pytest.approx(float(hanley_mcneil_se(area, 60, 300)), rel=0.2)
    assert auc_interval(positive, negative) == (low, high)
    assert auc_interval(positive, negative, seed=1) != (low, high)


def test_interval_keeps_the_size_of_each_stratum():
    # Classes far apart: without strata the mix of classes varies and the interval is wide; with strata nothing varies.
    positive, negative = torch.tensor([0.0] * 30 + [10.0] * 30), torch.tensor([1.0] * 50 + [11.0] * 50)
    strata = (torch.arange(60) // 30, torch.arange(100) // 50)
    low, high = auc_interval(positive, negative, strata)
    assert low == high == float(rank_auc(positive, negative))
    wide = auc_interval(positive, negative)
    assert wide[1] - wide[0] > 0.1
