import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from request_cases import NAME, plain, random_graphs, undirected

from page_lightning.data.apply_request import apply_request
from page_lightning.data.edge_attack import edge_attack
from page_lightning.data.requests import RequestContext, RequestOptions
from page_lightning.errors import PoisonError

KINDS = ("heterophilous_train", "heterophilous", "any")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from([0.01, 0.1, 0.3]), st.booleans())
def test_injected_edges(seed, kind, ratio, sparse):
    graphs = random_graphs(seed, (60, 45, 80), sparse=sparse, density=0.05)
    before = plain(graphs)
    try:
        poisoned, request = edge_attack(graphs, ratio, seed, kind, name=NAME)
    except PoisonError:  # more edges than free pairs
        reject()
    assert plain(graphs) == before
    label = dict(zip(graphs.node_id.tolist(), graphs.y.tolist(), strict=True))
    train = set(graphs.node_id[graphs.masks["train"]].tolist())
    for slot in range(3):
        clean, injected = set(undirected(graphs, slot)), set(request.edges.get(slot, ()))
        assert len(injected) == int(ratio * len(clean) + 1e-9)
        assert not clean & injected
        assert set(undirected(poisoned, slot)) == clean | injected
        assert all(u != v for u, v in injected)
        if kind != "any":
            assert all(label[u] != label[v] for u, v in injected)
        if kind == "heterophilous_train":
            assert all(train.issuperset(edge) for edge in injected)
    assert request.kinds <= {"edge"}
    assert poisoned.edge_index.shape[1] == graphs.edge_index.shape[1] + 2 * request.num_edges
    source, target = poisoned.edge_index
    order = target * poisoned.num_nodes + source
    assert (order.diff() > 0).all(), "sorted by target, without duplicates"


@pytest.mark.parametrize("kind", KINDS)
def test_the_request_gives_the_clean_graphs_back(kind):
    graphs = random_graphs(3, (60, 45, 80), density=0.05)
    poisoned, request = edge_attack(graphs, 0.5, 1, kind, name=NAME)
    assert request.context == RequestContext.of(poisoned, NAME) != RequestContext.of(graphs, NAME)
    clean = apply_request(poisoned, request)
    assert RequestContext.of(clean, NAME) == RequestContext.of(graphs, NAME)
    assert torch.equal(clean.edge_index, graphs.edge_index)


def test_a_client_can_be_filled_to_the_last_pair():
    graphs = random_graphs(4, (9, 6), density=0.5)
    pairs = [9 * 8 // 2, 6 * 5 // 2]
    free = [total - len(undirected(graphs, slot)) for slot, total in enumerate(pairs)]
    share = min(free[slot] / len(undirected(graphs, slot)) for slot in (0, 1))
    poisoned, _ = edge_attack(graphs, share, 0, "any", name=NAME)
    assert any(len(undirected(poisoned, slot)) == pairs[slot] for slot in (0, 1))
    with pytest.raises(PoisonError, match=r"edge attack: client \d has \d+ free pairs of nodes for \d+ edges"):
        edge_attack(graphs, share + 0.2, 0, "any", name=NAME)


def test_seeds_and_clients_draw_apart():
    graphs = random_graphs(5, (60, 45, 80), density=0.05)
    one, again, other = (edge_attack(graphs, 0.2, seed, name=NAME)[1] for seed in (0, 0, 1))
    assert one == again != other
    rest = apply_request(graphs, RequestOptions(kind="client", clients=[0]).build(graphs, NAME))
    poisoned, request = edge_attack(rest, 0.2, 0, name=NAME)
    assert request.edges[2] == one.edges[2]
    assert poisoned.sizes[0] == 0


@pytest.mark.parametrize(("ratio", "seed"), [(0.0, 0), (-1.0, 0), (float("nan"), 0), (float("inf"), 0), (0.1, -1)])
def test_impossible_attacks(ratio, seed):
    with pytest.raises(PoisonError, match="edge attack: ratio"):
        edge_attack(random_graphs(6), ratio, seed, name=NAME)
