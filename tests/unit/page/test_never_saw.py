"""The never-saw teacher: closed form, temperature, and that it never saw."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.never_saw import (
    gram_message,
    matched_temperature,
    never_saw_answers,
    propagated_features,
    solve_ridge,
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


@pytest.mark.parametrize("wanted", [0.4, 0.7, 0.95])
def test_temperature_meets_the_confidence(wanted):
    scores = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    factor = matched_temperature(scores, torch.tensor(wanted, dtype=torch.float64))
    assert float((factor * scores).softmax(1).amax(1).mean()) == pytest.approx(wanted, abs=1e-6)


def test_it_never_reads_forgotten_labels_or_test_nodes(data):
    graphs = data.graphs
    request = RequestOptions("node", ratio=0.2).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    nodes = torch.tensor(
        [i for i in range(graphs.num_nodes) if graphs.node_id[i] not in set(retained.node_id.tolist())]
    )
    logits = torch.randn(retained.num_nodes, 3, generator=torch.Generator().manual_seed(0))
    answers, messages = never_saw_answers(retained, graphs, nodes, logits)
    assert len(messages) == 3
    torch.testing.assert_close(answers.sum(1), torch.ones(len(nodes)))

    def spoilt(part, where):
        y = part.y.clone()
        y[where] = (y[where] + 1) % 3
        return ClientGraphs(part.x, part.edge_index, y, part.sizes, part.node_id, part.masks, 3)

    other = never_saw_answers(spoilt(retained, retained.masks["test"]), spoilt(graphs, nodes), nodes, logits)[0]
    assert torch.equal(answers, other)
