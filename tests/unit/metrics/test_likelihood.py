"""Calibrated scores against SciPy, NumPy and plain loops."""

import numpy as np
import pytest
import torch
from scipy import stats

from page_lightning.metrics.functional import (
    class_matched_non_edges,
    deletion_detectability,
    leave_one_out_moments,
    link_auc,
    lira_auc,
    lira_z,
    mean_z,
    moments,
    phi,
    rank_auc,
    relative_log_likelihood,
    rmia,
    rms_z,
    t_lr,
)


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


def test_phi_is_the_log_odds_and_stays_finite(draw):
    logits = torch.randn(3, 5, 4, generator=draw, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 0])
    p = logits.softmax(-1)[:, torch.arange(5), y]
    torch.testing.assert_close(phi(logits, y), p.log() - (-p).log1p())
    assert phi(torch.tensor([[200.0, 0.0]]), torch.tensor([0])).item() == 200  # float32 p is 1 here
    assert phi(torch.tensor([[0.0, 200.0]]), torch.tensor([0])).item() == -200


def test_z_with_shrunk_variances(draw):
    target, retrain = torch.randn(2, 6, generator=draw), torch.randn(5, 6, generator=draw)
    variance = retrain.numpy().var(0, ddof=1)
    expected = (target.numpy() - retrain.numpy().mean(0)) / np.sqrt((variance + variance.mean()) / 2)
    np.testing.assert_allclose(lira_z(target, retrain).numpy(), expected, rtol=1e-5)
    torch.testing.assert_close(lira_z(target, retrain[:1]), target - retrain[0])


@pytest.mark.parametrize("size", [2, 3, 8])
def test_leave_one_out_moments_equal_a_loop(draw, size):
    ensemble = torch.randn(4, size, 7, generator=draw, dtype=torch.float64) + 100
    mean, std = leave_one_out_moments(ensemble)
    for i in range(size):
        expected = moments(torch.cat([ensemble[:, :i], ensemble[:, i + 1 :]], 1))
        torch.testing.assert_close((mean[:, i], std[:, i]), expected)


def test_summaries_of_z(draw):
    z = torch.randn(3, 9, generator=draw)
    forgotten = torch.tensor([True] * 4 + [False] * 5)
    torch.testing.assert_close(mean_z(z, forgotten, ~forgotten), z[:, :4].mean(1) - z[:, 4:].mean(1))
    torch.testing.assert_close(mean_z(z, torch.arange(4)), z[:, :4].mean(1))
    torch.testing.assert_close(rms_z(z, forgotten), (z[:, :4] ** 2).mean(1).sqrt())
    torch.testing.assert_close(lira_auc(z, forgotten, ~forgotten), rank_auc(z[:, :4], z[:, 4:]))


def test_likelihood_ratio_equals_scipy(draw):
    target, retrain, original = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (2, 5, 4))
    expected = 0
    for sign, ensemble in ((1, original), (-1, retrain)):
        mean, std = moments(ensemble)
        expected = expected + sign * stats.norm.logpdf(target.numpy(), mean.numpy(), std.numpy())
    np.testing.assert_allclose(t_lr(target, retrain, original).numpy(), expected)


def test_rmia_equals_its_definition(draw):
    logits, retrain = torch.randn(2, 12, 3, generator=draw), torch.randn(4, 12, 3, generator=draw)
    y, population = torch.arange(12) % 3, torch.arange(5, 12)
    p = logits.softmax(-1)[:, torch.arange(12), y]
    out = retrain.softmax(-1)[:, torch.arange(12), y].mean(0)
    ratio = p / (1.3 / 2 * out + 0.7 / 2)
    expected = (ratio[:, :, None] / ratio[:, None, population] > 1).double().mean(2)
    log_ratio = relative_log_likelihood(logits, retrain, y)
    torch.testing.assert_close(log_ratio.exp(), ratio)
    torch.testing.assert_close(rmia(log_ratio, population), expected)


def test_deletion_detectability_calls_a_model_that_did_nothing_perfect(draw):
    before = torch.randn(20, 4, generator=draw)
    forgotten = torch.arange(20) < 8
    assert deletion_detectability(before, before, forgotten, ~forgotten) == 0.5
    after = before.clone()
    after[forgotten] += torch.randn(8, 4, generator=draw)
    assert deletion_detectability(before, after, forgotten, ~forgotten) == 1.0


def test_link_attack_and_its_matched_pairs(draw):
    y = torch.arange(60) % 3
    edges = torch.randint(60, (2, 80), generator=draw)
    edges = edges[:, edges[0] != edges[1]]
    pairs = class_matched_non_edges(edges, edges, y)
    assert pairs.shape == edges.shape
    torch.testing.assert_close(y[pairs], y[edges])
    known = {frozenset(pair) for pair in edges.T.tolist()}
    assert all(len(set(pair)) == 2 and frozenset(pair) not in known for pair in pairs.T.tolist())
    torch.testing.assert_close(class_matched_non_edges(edges, edges, y), pairs)

    logits = torch.randn(60, 5, generator=draw)
    posterior = logits.softmax(-1).numpy()
    correlation = [
        torch.tensor([np.corrcoef(posterior[u], posterior[v])[0, 1] for u, v in some.T]) for some in (edges, pairs)
    ]
    torch.testing.assert_close(link_auc(logits, edges, pairs), rank_auc(*correlation))


def test_an_edge_between_fully_joined_classes_has_no_partner():
    y = torch.tensor([0, 0, 1, 1])
    full = torch.tensor([[0, 0, 1, 1], [2, 3, 2, 3]])
    assert class_matched_non_edges(full[:, :2], full, y).shape == (2, 0)
