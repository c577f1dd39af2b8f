import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from request_cases import LABELS, NAME, dense, forget_by_hand, plain, random_graphs, requests, undirected

from page_lightning.data.apply_request import affected_clients, apply_request, forgotten_nodes
from page_lightning.data.requests import FeatureTarget, RequestContext, RequestOptions, UnlearningRequest
from page_lightning.errors import RequestError, StaleRequestError
from page_lightning.federation.graphs import ClientGraphs


def request_for(graphs, clients=(), nodes=None, edges=None, features=None) -> UnlearningRequest:
    return UnlearningRequest(clients, nodes or {}, edges or {}, features or {}, RequestContext.of(graphs, NAME))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 0.1, 0.4, 1.0]))
def test_equals_removal_by_hand(data, seed, sparse, density):
    graphs = random_graphs(seed, sparse=sparse, density=density)
    before = copy.deepcopy(plain(graphs))
    request = data.draw(requests(graphs))
    after = apply_request(graphs, request)
    assert plain(after) == forget_by_hand(before, request)
    assert plain(graphs) == before, "the input was changed"

    source, target = after.edge_index
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert len(pairs) == after.edge_index.shape[1]
    assert pairs == {(v, u) for u, v in pairs}
    order = target * max(after.num_nodes, 1) + source
    assert torch.equal(order, order.sort().values), "edges must stay sorted by target"
    assert (after.client[source] == after.client[target]).all()
    assert after.x.layout == graphs.x.layout
    assert after.x.dtype == graphs.x.dtype
    if sparse:
        assert (after.x.values() != 0).all(), "zeros are stored"
    assert all(after.sizes[client] == 0 for client in request.clients)


@pytest.mark.parametrize("sparse", [True, False])
def test_an_empty_request_changes_nothing(sparse):
    graphs = random_graphs(1, sparse=sparse)
    after = apply_request(graphs, request_for(graphs))
    assert RequestContext.of(after, NAME) == RequestContext.of(graphs, NAME)
    assert torch.equal(after.edge_index, graphs.edge_index)
    assert plain(after) == plain(graphs)


def test_edges_in_any_order():
    graphs = random_graphs(2)
    shuffled = graphs.edge_index[:, torch.randperm(graphs.edge_index.shape[1])]
    other = ClientGraphs(
        graphs.x, shuffled, graphs.y, graphs.sizes, graphs.node_id, graphs.masks, graphs.num_classes, graphs.clients
    )
    request = RequestOptions(kind="edge", ratio=0.5, pool="all").build(graphs, NAME)
    assert RequestOptions(kind="edge", ratio=0.5, pool="all").build(other, NAME) == request
    one, two = apply_request(graphs, request), apply_request(other, request)
    assert torch.equal(one.edge_index, two.edge_index)


def test_an_edge_request_takes_both_directions_and_nothing_else():
    graphs = random_graphs(3)
    edge = undirected(graphs, 0)[0]
    after = apply_request(graphs, request_for(graphs, edges={0: (edge[::-1], edge, edge)}))
    assert after.edge_index.shape[1] == graphs.edge_index.shape[1] - 2
    assert edge not in undirected(after, 0)
    assert torch.equal(after.node_id, graphs.node_id)


@pytest.mark.parametrize("sparse", [True, False])
def test_only_named_entries_become_zero(sparse):
    graphs = random_graphs(4, sparse=sparse)
    a, b = graphs.node_id[:2].tolist()
    after = apply_request(graphs, request_for(graphs, features={0: (FeatureTarget((a,)), FeatureTarget((b,), (2, 5)))}))
    expected = dense(graphs).copy()
    expected[0], expected[1, [2, 5]] = 0, 0
    assert (dense(after) == expected).all()
    assert torch.equal(after.y, graphs.y)
    assert torch.equal(after.edge_index, graphs.edge_index)


def test_slots_and_ids_never_shift():
    graphs = random_graphs(5)
    once = apply_request(graphs, request_for(graphs, clients=(1,)))
    assert once.sizes == (graphs.sizes[0], 0, graphs.sizes[2])
    twice = apply_request(once, request_for(once, nodes={2: (int(once.node_id[-1]),)}))
    assert twice.num_clients == 3
    assert twice.sizes == (graphs.sizes[0], 0, graphs.sizes[2] - 1)
    assert torch.equal(twice.node_id[: graphs.sizes[0]], graphs.node_id[: graphs.sizes[0]])
    with pytest.raises(RequestError, match="client 1 has already left"):
        apply_request(twice, request_for(twice, clients=(1,)))


def test_a_chain_of_requests_is_verified():
    """A request belongs to the state it was made for: out of turn, twice, or on other data it is refused."""
    graphs = random_graphs(6)
    first = RequestOptions(ratio=0.2).build(graphs, NAME)
    once = apply_request(graphs, first)
    second = RequestOptions(ratio=0.2).build(once, NAME)
    assert first.context != second.context
    assert not {n for found in first.nodes.values() for n in found} & {n for f in second.nodes.values() for n in f}
    apply_request(once, second)
    with pytest.raises(StaleRequestError, match="made for another federation"):
        apply_request(once, first)
    with pytest.raises(StaleRequestError, match="made for another federation"):
        apply_request(graphs, second)


def test_the_order_of_two_requests_does_not_matter_for_the_result():
    graphs = random_graphs(7)
    node, edge = graphs.node_id[graphs.masks["train"]][0].item(), undirected(graphs, 2)[0]
    both = apply_request(graphs, request_for(graphs, nodes={0: (node,)}, edges={2: (edge,)}))
    one = apply_request(graphs, request_for(graphs, nodes={0: (node,)}))
    one = apply_request(one, request_for(one, edges={2: (edge,)}))
    two = apply_request(graphs, request_for(graphs, edges={2: (edge,)}))
    two = apply_request(two, request_for(two, nodes={0: (node,)}))
    assert plain(both) == plain(one) == plain(two)


def test_forgotten_nodes_of_each_kind():
    graphs = random_graphs(8)
    ids, train, client = graphs.node_id, graphs.masks["train"], graphs.client
    other = int(ids[(client == 0) & ~train][0])
    edge = undirected(graphs, 0)[0]
    ends = torch.tensor(sorted(int((ids == end).nonzero()) for end in edge))
    row_of = {int(node): row for row, node in enumerate(ids)}
    cases = [
        (request_for(graphs, nodes={0: (other,)}), [row_of[other]]),
        (request_for(graphs, features={0: (FeatureTarget((other,), (1,)),)}), [row_of[other]]),
        (request_for(graphs, edges={0: (edge,)}), ends[train[ends]].tolist()),
        (request_for(graphs, clients=(2,)), (train & (client == 2)).nonzero().flatten().tolist()),
        (request_for(graphs), []),
    ]
    for request, expected in cases:
        assert forgotten_nodes(graphs, request).tolist() == expected
        assert affected_clients(graphs, request) == request.touched


def test_a_part_of_the_federation():
    graphs = random_graphs(9)
    request = RequestOptions(ratio=0.3, clients=[1, 2]).build(graphs, NAME)
    part = graphs.select([0, 2])
    found = part.node_id[forgotten_nodes(part, request)].tolist()
    assert sorted(found) == list(request.nodes[2])
    assert affected_clients(part, request) == (1,)
    leaving = request_for(graphs, clients=(2,))
    assert part.client[forgotten_nodes(part, leaving)].unique().tolist() == [1]


def test_targets_that_are_gone_are_left_out():
    graphs = random_graphs(10)
    gone, kept = undirected(graphs, 0)[0]
    masks = {**graphs.masks, "train": torch.ones_like(graphs.masks["train"])}
    graphs = ClientGraphs(graphs.x, graphs.edge_index, graphs.y, graphs.sizes, graphs.node_id, masks, LABELS)
    request = request_for(graphs, nodes={0: (gone,)}, edges={0: ((gone, kept),)})
    after = apply_request(graphs, request)
    assert graphs.node_id[forgotten_nodes(graphs, request)].tolist() == [gone, kept]
    assert after.node_id[forgotten_nodes(after, request)].tolist() == [kept]
    idle = apply_request(after, request_for(after, clients=(0,))).select([0])
    assert forgotten_nodes(idle, request).tolist() == []
    assert idle.num_nodes == 0
