import pytest
import torch
from request_cases import LABELS, NAME, plain, random_graphs

from page_lightning.data.apply_request import apply_request, forgotten_nodes
from page_lightning.data.label_shift import label_shift
from page_lightning.data.requests import RequestContext, RequestOptions
from page_lightning.errors import PoisonError, RequestError

GRAPHS = random_graphs(31, (40, 25, 60))


def test_clients():
    poisoned, request = label_shift(GRAPHS, name=NAME, clients=[2, 0])
    shifted = GRAPHS.masks["train"] & (GRAPHS.client != 1)
    assert torch.equal(poisoned.y, torch.where(shifted, (GRAPHS.y + 1) % LABELS, GRAPHS.y))
    assert request.clients == (0, 2)
    assert request.kinds == {"client"}
    assert torch.equal(forgotten_nodes(poisoned, request), shifted.nonzero().flatten())


def test_a_share_of_nodes():
    before = plain(GRAPHS)
    poisoned, request = label_shift(GRAPHS, name=NAME, ratio=0.3, seed=4)
    assert plain(GRAPHS) == before
    changed = (poisoned.y != GRAPHS.y).nonzero().flatten()
    assert torch.equal(changed, forgotten_nodes(poisoned, request))
    assert torch.equal(poisoned.y[changed], (GRAPHS.y[changed] + 1) % LABELS)
    assert GRAPHS.masks["train"][changed].all()
    for slot, count in enumerate(GRAPHS.count("train").tolist()):
        assert len(request.nodes[slot]) == int(0.3 * count + 1e-9)
    assert request.selection == {"mode": "label_shift", "clients": "all", "ratio": 0.3, "seed": 4}
    assert request.nodes != RequestOptions(ratio=0.3, seed=4).build(GRAPHS, NAME).nodes, "a stream of its own"
    assert request != label_shift(GRAPHS, name=NAME, ratio=0.3, seed=5)[1]


@pytest.mark.parametrize("options", [{"clients": [1]}, {"ratio": 0.2}])
def test_nothing_poisoned_is_left_after_the_request(options):
    poisoned, request = label_shift(GRAPHS, name=NAME, **options)
    assert request.context == RequestContext.of(poisoned, NAME)
    rest = apply_request(poisoned, request)
    clean = dict(zip(GRAPHS.node_id.tolist(), GRAPHS.y.tolist(), strict=True))
    assert [clean[node] for node in rest.node_id.tolist()] == rest.y.tolist()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, PoisonError, "give either clients or ratio"),
        ({"clients": [0], "ratio": 0.1}, PoisonError, "give either clients or ratio"),
        ({"ratio": 0.0}, PoisonError, "ratio 0.0 must be above 0 and below 1"),
        ({"ratio": 0.1, "seed": -1}, PoisonError, "seed -1 must not be negative"),
        ({"clients": []}, PoisonError, "name at least one client"),
        ({"clients": [7]}, RequestError, "label shift: client 7 does not exist"),
        ({"clients": [0, 1, 2]}, RequestError, "all clients would leave"),
    ],
)
def test_impossible_shifts(options, error, message):
    with pytest.raises(error, match=message):
        label_shift(GRAPHS, name=NAME, **options)
