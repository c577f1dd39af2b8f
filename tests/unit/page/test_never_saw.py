"""The never-saw teacher: closed form, calibration, how far to go, and that it never saw."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.never_saw import (
    MIXING,
    Blend,
    blend_statistics,
    calibrated_weights,
    choose_blend,
    gram_message,
    never_saw,
    propagated_features,
    solve_ridge,
    teacher_answers,
)

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 80, "words_per_node": 7}


@pytest.fixture(scope="module")
def data():
    module = FederatedGraphDataModule(num_clients=3, source_args=SMALL)
    module.setup()
    return module


def test_summed_messages_give_the_pooled_ridge(data):
    graphs = data.graphs
    x = propagated_features(graphs, 2, 1024, 0)
    rows = [(graphs.masks["train"] & (graphs.client == k)).nonzero().squeeze(1) for k in range(3)]
    messages = [gram_message(x[own], graphs.y[own], 3) for own in rows]
    gram, moment = (sum(getattr(m, part) for m in messages) for part in ("gram", "moment"))
    ours = solve_ridge(gram, moment, 0.3)
    everyone = torch.cat(rows)
    target = np.eye(3)[graphs.y[everyone].numpy()] - 1 / 3
    alpha = 0.3 * float(gram.diagonal().mean())
    reference = Ridge(alpha=alpha, fit_intercept=False).fit(x[everyone].numpy(), target)
    np.testing.assert_allclose(ours.numpy(), reference.coef_.T, atol=1e-8)


def test_propagation_is_the_definition(data):
    graphs = data.graphs
    a = torch.eye(graphs.num_nodes, dtype=torch.float64)
    a[graphs.edge_index[1], graphs.edge_index[0]] = 1
    inverse = a.sum(1).rsqrt()
    s = inverse[:, None] * a * inverse
    torch.testing.assert_close(
        propagated_features(graphs, 2, 1024, 0), s @ s @ graphs.x.to_dense().double(), atol=1e-5, rtol=1e-5
    )
    narrow = propagated_features(graphs, 2, 16, 0)
    assert narrow.shape == (graphs.num_nodes, 16)
    assert narrow.equal(propagated_features(graphs, 2, 16, 0))


def test_some_rows_alone_are_those_rows(data):
    mask = torch.zeros(data.graphs.num_nodes, dtype=torch.bool)
    mask[[3, 50, 149]] = True
    whole, part = (propagated_features(data.graphs, 2, 16, 0, nodes) for nodes in (None, mask))
    torch.testing.assert_close(part, whole[mask])


def test_calibration_is_the_least_cross_entropy():
    draws = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 300, 4, generator=draws, dtype=torch.float64)
    wanted = (3 * scores[0] + torch.randn(300, 4, generator=draws, dtype=torch.float64)).softmax(1)
    ours = calibrated_weights(scores, wanted)

    def loss(weights):
        logits = np.einsum("j,jnc->nc", weights, scores.numpy())
        return -(wanted.numpy() * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum(1).mean()

    np.testing.assert_allclose(ours.numpy(), minimize(loss, [1.0, 1.0], tol=1e-12).x, atol=1e-4)


def test_without_unlabelled_nodes_both_ridges_weigh_the_same():
    assert calibrated_weights(torch.zeros(2, 0, 3), torch.zeros(0, 3)).unique().numel() == 1


def log_odds(p):
    return np.log(p) - np.log1p(-p)


def example(seed=0, forgotten=40, checked=200):
    draws = torch.Generator().manual_seed(seed)
    normal = [torch.randn(n, 3, generator=draws, dtype=torch.float64) for n in (forgotten, forgotten, checked, checked)]
    before, asked, original, kept = normal
    y, labels = (torch.randint(3, (n,), generator=draws) for n in (forgotten, checked))
    before[range(forgotten), y] += 6
    difference = torch.zeros_like(before)
    difference[range(forgotten), y] = -0.8
    return before, difference, y, asked.log_softmax(1), original, (kept + original).log_softmax(1), labels


def test_the_blend_makes_forgotten_nodes_look_unseen():
    halves = example(0), example(1)
    blend = choose_blend([blend_statistics(*half) for half in halves])
    before, difference, y, asked, original, kept, labels = (torch.cat(parts) for parts in zip(*halves, strict=True))
    hard, easy = (log_odds(p.exp()[range(len(c)), c].numpy()) for p, c in ((kept, labels), (asked, y)))
    seen = log_odds(original.softmax(1)[range(len(labels)), labels].numpy())
    slope, level = np.polyfit(hard, seen, 1)
    moved = (before + blend.scale * difference).softmax(1)
    reached = log_odds(moved[range(len(y)), y].numpy()).mean()
    assert reached == pytest.approx(slope * easy.mean() + level, abs=0.05)
    gap = (original.softmax(1) * (original.log_softmax(1) - kept)).sum(1).mean()
    far = MIXING * (moved * (moved.log() - before.log_softmax(1))).sum(1).mean()
    assert blend.weight == pytest.approx(float(far / (far + gap)), abs=0.02)


def test_nothing_to_compare_with_is_half_and_half():
    before, difference, y, asked, original, kept, labels = example(checked=0)
    assert choose_blend([blend_statistics(before, difference, y, asked, original, kept, labels)]) == Blend(1.0, 0.5)


def test_the_teacher_lies_between_its_two_parts():
    before, difference, _, asked, *_ = example()
    torch.testing.assert_close(
        teacher_answers(before, difference, asked, Blend(2.0, 0.0)), (before + 2 * difference).softmax(1)
    )
    torch.testing.assert_close(teacher_answers(before, difference, asked, Blend(2.0, 1.0)), asked.exp())


def test_it_never_reads_forgotten_labels_or_test_nodes(data):
    graphs = data.graphs
    request = RequestOptions("node", ratio=0.2).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    nodes = ~torch.isin(graphs.node_id, retained.node_id)
    logits = torch.randn(retained.num_nodes, 3, generator=torch.Generator().manual_seed(0))
    found = never_saw(retained, graphs, nodes, logits)
    assert len(found.messages) == 3
    assert found.asked.shape == (int(nodes.sum()), 3)
    assert found.kept.shape == (retained.num_nodes, 3)
    for answers in (found.asked, found.kept):
        torch.testing.assert_close(answers.exp().sum(1), torch.ones(len(answers), dtype=torch.float64))

    def spoilt(part, where):
        y = part.y.clone()
        y[where] = (y[where] + 1) % 3
        return ClientGraphs(part.x, part.edge_index, y, part.sizes, part.node_id, part.masks, 3)

    other = never_saw(spoilt(retained, ~retained.masks["train"]), spoilt(graphs, nodes), nodes, logits)
    assert torch.equal(found.asked, other.asked)
