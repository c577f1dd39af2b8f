"""Accuracy, macro-F1 and AUROC of every client against scikit-learn."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from page_lightning.metrics.classification import ClientClassification, grouped_auroc

CLIENTS, CLASSES = 4, 5


@pytest.fixture
def data():
    """Client 2 has one class only, client 3 no node; scores have ties."""
    rng = np.random.default_rng(0)
    client = rng.choice([0, 1, 2], 120, p=[0.5, 0.4, 0.1])
    labels = rng.integers(0, CLASSES - 1, 120)
    labels[client == 2] = 3
    logits = np.round(rng.standard_normal((120, CLASSES)) + 1.5 * np.eye(CLASSES)[labels], 1)
    return tuple(map(torch.from_numpy, (logits, labels, client)))


def reference(logits, labels, client, slot):
    rows = client == slot
    truth, scores = labels[rows].numpy(), logits[rows].softmax(1).numpy()
    present = np.unique(truth)
    areas = [roc_auc_score(truth == c, scores[:, c]) for c in present] if len(present) > 1 else [np.nan]
    return {
        "accuracy": accuracy_score(truth, scores.argmax(1)),
        "macro_f1": f1_score(truth, scores.argmax(1), average="macro"),
        "auroc": np.mean(areas),
    }


def test_figures_per_client_equal_scikit_learn(data):
    logits, labels, client = data
    metric = ClientClassification([60, 50, 10, 3], CLASSES, auroc=True)
    for rows in torch.arange(120).split(50):
        metric.update(logits[rows], labels[rows], client[rows])
    figures = metric.per_client()
    for slot in range(3):
        for name, value in reference(logits, labels, client, slot).items():
            assert figures[name][slot].item() == pytest.approx(value, abs=1e-12, nan_ok=True), (name, slot)
    assert all(values[3].isnan() for values in figures.values())


def test_means_weigh_clients_by_their_nodes_where_defined(data):
    logits, labels, client = data
    nodes = np.array([60, 50, 10])
    metric = ClientClassification([*nodes.tolist(), 3], CLASSES, auroc=True)
    metric.update(logits, labels, client)
    means = metric.compute()
    for name in ("accuracy", "macro_f1", "auroc"):
        values = np.array([reference(logits, labels, client, slot)[name] for slot in range(3)])
        known = ~np.isnan(values)
        expected = (values[known] * nodes[known]).sum() / nodes[known].sum()
        assert means[name].item() == pytest.approx(expected, abs=1e-12)


def test_auroc_counts_the_classes_of_a_client_only(data):
    """As scikit-learn's one-against-rest mean over the classes that occur."""
    logits, labels, _ = data
    groups = torch.zeros_like(labels)
    present = labels.unique()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.mean([roc_auc_score(labels == c, logits[:, c]) for c in present])
    assert grouped_auroc(logits, labels, groups, 1).item() == pytest.approx(expected, abs=1e-12)


def test_auroc_depends_on_order_alone(data):
    logits, labels, client = data
    first = grouped_auroc(logits, labels, client, CLIENTS)
    assert torch.equal(first.nan_to_num(), grouped_auroc(logits.exp() * 3, labels, client, CLIENTS).nan_to_num())
    assert first[2:].isnan().all()
