import copy
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from request_cases import NAME, WIDTH, random_graphs, requests, undirected

from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import FeatureTarget, RequestContext, UnlearningRequest, check_request, read_request
from page_lightning.errors import RequestError, StaleRequestError
from page_lightning.federation.graphs import ClientGraphs

GRAPHS = random_graphs(11)
CONTEXT = RequestContext.of(GRAPHS, NAME)
IDS = [GRAPHS.node_id[GRAPHS.client == slot].tolist() for slot in range(3)]
TRAIN = [GRAPHS.node_id[(GRAPHS.client == slot) & GRAPHS.masks["train"]].tolist() for slot in range(3)]
TEST = [GRAPHS.node_id[(GRAPHS.client == slot) & GRAPHS.masks["test"]].tolist() for slot in range(3)]
EDGE = undirected(GRAPHS, 0)[0]


def request_for(clients=(), nodes=None, edges=None, features=None) -> UnlearningRequest:
    return UnlearningRequest(clients, nodes or {}, edges or {}, features or {}, CONTEXT)


def saved(folder, content) -> str:
    path = folder / ("request.csv" if isinstance(content, str) else "request.json")
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_form_is_canonical_whatever_the_order():
    one = request_for((2, 1, 2), {1: (9, 3, 3), 0: (4,)}, {0: ((7, 5), (5, 7), (1, 2))}, {1: (), 0: ()})
    two = request_for((1, 2), {0: (4,), 1: (3, 9)}, {0: ((1, 2), (5, 7))})
    assert one == two
    assert hash(one) == hash(two)
    assert one.to_json() == two.to_json()
    assert (one.clients, dict(one.nodes), dict(one.edges)) == ((1, 2), {0: (4,), 1: (3, 9)}, {0: ((1, 2), (5, 7))})
    assert (one.num_nodes, one.num_edges, one.num_features) == (3, 2, 0)
    assert one.kinds == {"client", "node", "edge"}
    assert one.touched == (0, 1, 2)


def test_feature_targets_are_merged_by_node():
    targets = (
        FeatureTarget((4, 1)),
        FeatureTarget((1, 2, 3), (5, 0)),
        FeatureTarget((2,), (1,)),
        FeatureTarget((6,), ()),
    )
    request = request_for(features={0: targets})
    assert request.features[0] == (FeatureTarget((1, 4)), FeatureTarget((2,), (0, 1, 5)), FeatureTarget((3,), (0, 5)))
    assert request.num_features == 4


def test_a_request_cannot_be_changed():
    nodes = {0: (1, 2)}
    request = request_for(nodes=nodes)
    nodes[1] = (3,)
    assert list(request.nodes) == [0]
    with pytest.raises(TypeError):
        request.nodes[0] = ()
    with pytest.raises(AttributeError):
        request.clients = (1,)


def test_copies_and_pickles_are_equal():
    request = UnlearningRequest((1,), {0: (1,)}, {}, {0: (FeatureTarget((3,), (1,)),)}, CONTEXT, {"clients": [1, 2]})
    for other in (copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert other == request
        assert other.selection == request.selection


def test_what_is_printed_and_published_holds_no_ids():
    request = request_for(nodes={0: (123456,)})
    assert "123456" not in repr(request)
    assert request.commitment("salt") == request.commitment("salt")
    assert (
        len({request.commitment("a"), request.commitment("b"), request_for().commitment("a"), request.request_id}) == 4
    )


def test_the_identity_is_pinned():
    """Equal on every machine and in every version: a change of this number breaks published requests."""
    context = RequestContext("Cora", "a", "b", "c", 5)
    request = UnlearningRequest((1,), {0: (3, 4)}, {2: ((1, 2),)}, {3: (FeatureTarget((5,), (0, 2)),)}, context)
    assert request.request_id == "dff905099ff72b7f828d094497ad11e920dedbf9a05113825243448e38bd618c"
    graphs = ClientGraphs.from_assignment(
        torch.arange(8.0).reshape(4, 2),
        torch.tensor([[0, 1], [1, 0]]),
        torch.tensor([0, 1, 0, 1]),
        torch.tensor([0, 0, 1, 1]),
        {name: torch.arange(4) % 3 == rest for rest, name in enumerate(("train", "val", "test"))},
        2,
        2,
    )
    found = RequestContext.of(graphs, "tiny")
    digests = (found.data_sha256[:12], found.partition_sha256[:12], found.split_sha256[:12])
    assert digests == ("4a789d847d8e", "0e220f0d7dd6", "295e77c1b6a8")


def changed(**changes) -> ClientGraphs:
    parts = ("x", "edge_index", "y", "sizes", "node_id", "masks", "num_classes")
    return ClientGraphs(**{part: changes.get(part, getattr(GRAPHS, part)) for part in parts})


def test_context_sees_every_part_and_no_order():
    y, x = GRAPHS.y.clone(), GRAPHS.x.clone()
    y[0] += 1
    x.values()[0] += 1
    masks = {**GRAPHS.masks, "train": ~GRAPHS.masks["val"]}
    for other, fact in (
        (changed(y=y), "data_sha256"),
        (changed(x=x), "data_sha256"),
        (changed(edge_index=GRAPHS.edge_index[:, 2:]), "data_sha256"),
        (changed(sizes=(10, 5, 11)), "partition_sha256"),
        (changed(masks=masks), "split_sha256"),
    ):
        found = RequestContext.of(other, NAME)
        differing = {name for name in vars(CONTEXT) if getattr(found, name) != getattr(CONTEXT, name)}
        assert differing == {fact}
    edges = GRAPHS.edge_index[:, torch.randperm(GRAPHS.edge_index.shape[1])]
    backwards = dict(reversed(GRAPHS.masks.items()))
    assert RequestContext.of(changed(edge_index=edges, masks=backwards), NAME) == CONTEXT


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_written_requests_are_read_back(tmp_path_factory, data):
    request = data.draw(requests(GRAPHS))
    path = tmp_path_factory.mktemp("request") / "request.json"
    request.write(path)
    assert read_request(path, GRAPHS, NAME) == request
    assert json.loads(path.read_text())["request_id"] == request.request_id
    assert path.read_text() == read_request(path, GRAPHS, NAME).to_json() + "\n"


def test_changed_and_stale_files_are_refused(tmp_path):
    content = request_for(nodes={0: (TRAIN[0][1],)}).to_dict()
    other = copy.deepcopy(content)
    other["targets"]["nodes"]["0"] = [TRAIN[0][0]]
    with pytest.raises(StaleRequestError, match="was changed after it was written: request_id"):
        read_request(saved(tmp_path, other), GRAPHS, NAME)
    other = copy.deepcopy(content)
    other["federation"]["split_sha256"] = "0" * 64
    with pytest.raises(StaleRequestError, match="was changed after it was written: request_id"):
        read_request(saved(tmp_path, other), GRAPHS, NAME)
    path = saved(tmp_path, content)
    after = apply_request(GRAPHS, read_request(path, GRAPHS, NAME))
    train = GRAPHS.masks["train"].clone()
    train[train.nonzero()[0]] = False
    for graphs, name, fact in (
        (GRAPHS, "Cora", "data set random, here Cora"),
        (after, NAME, "partition digest"),
        (changed(masks={**GRAPHS.masks, "train": train}), NAME, "split digest"),
        (changed(y=GRAPHS.y.roll(1)), NAME, "data digest"),
        (random_graphs(11, (9, 6, 6, 5)), NAME, "number of clients 3, here 4"),
    ):
        with pytest.raises(StaleRequestError, match=fact):
            read_request(path, graphs, name)


def test_json_by_hand(tmp_path):
    u, v = EDGE
    content = {
        "targets": {
            "nodes": [TRAIN[1][0], TRAIN[0][1], TRAIN[0][1]],
            "edges": [[v, u], [u, v]],
            "features": [{"nodes": [TRAIN[2][0], TRAIN[1][1]], "columns": [3, 1]}, {"nodes": [TRAIN[2][0]]}],
        }
    }
    request = read_request(saved(tmp_path, content), GRAPHS, NAME)
    assert request == request_for(
        (),
        {0: (TRAIN[0][1],), 1: (TRAIN[1][0],)},
        {0: (EDGE,)},
        {1: (FeatureTarget((TRAIN[1][1],), (1, 3)),), 2: (FeatureTarget((TRAIN[2][0],)),)},
    )
    content = {"targets": {"clients": [1], "features": {"2": {"nodes": [TRAIN[2][0]], "columns": "all"}}}}
    request = read_request(saved(tmp_path, content), GRAPHS, NAME)
    assert request == request_for((1,), features={2: (FeatureTarget((TRAIN[2][0],)),)})


def test_csv_headers(tmp_path):
    u, v = EDGE
    node, other = TRAIN[0][0], TRAIN[2][0]
    for text, expected in (
        (f"node_id\n{node}\n{other}\n{node}\n", request_for(nodes={0: (node,), 2: (other,)})),
        (f"src, dst\n{v}, {u}\n\n{u}, {v}\n", request_for(edges={0: (EDGE,)})),
        ("\ufeffclient_id\n2\n", request_for((2,))),
        (
            f"node_id,column\n{node},3\n{other},all\n{node},0\n",
            request_for(features={0: (FeatureTarget((node,), (0, 3)),), 2: (FeatureTarget((other,)),)}),
        ),
    ):
        assert read_request(saved(tmp_path, text), GRAPHS, NAME) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("node_id\n999\n", "node 999 is not in the federation: unknown, or already forgotten"),
        ("node_id\n", "nothing to forget in it"),
        ("", "the first line must be node_id"),
        ("id\n1\n", "the first line must be node_id"),
        ("node_id\nx\n", "line 2: 'x' must be integers"),
        ("node_id\nall\n", "line 2: 'all' must be integers"),
        ("src,dst\n1\n", "line 2: 1 values under the header src,dst"),
        ("client_id\n7\n", "client 7 does not exist; there are 3"),
        ("client_id\n0\n1\n2\n", "all clients would leave"),
        (
            "node_id\n" + "\n".join(map(str, TRAIN[1])),
            f"client 1 would keep none of its {len(TRAIN[1])} training nodes",
        ),
        (f"node_id,column\n{TRAIN[0][0]},{WIDTH}\n", f"feature column {WIDTH} does not exist; there are {WIDTH}"),
        (f"node_id\n{TEST[0][0]}\n", "is no training node; request.pool all allows it"),
        (f"node_id,column\n{TEST[0][0]},1\n", "is no training node; request.pool all allows it"),
        (f"src,dst\n{IDS[0][0]},{IDS[0][0]}\n", "there is no edge between nodes"),
        (f"src,dst\n{IDS[0][0]},{IDS[1][0]}\n", "belong to clients 0 and 1; edges between clients"),
        (f"src,dst\n{IDS[0][0]},999\n", "node 999 is not in the federation"),
        ({"targets": {"nodes": {"1": [IDS[0][0]]}}}, "belongs to client 0, not to client 1"),
        ({"targets": {"nodes": {"3": [IDS[0][0]]}}}, "client 3 does not exist"),
        ({"targets": {"nodes": {"01": [IDS[0][0]]}}}, "targets.nodes: '01' is no client"),
        ({"targets": {"nodes": 5}}, "targets.nodes must be a list"),
        ({"targets": {"nodes": [1.5]}}, "targets.nodes must hold integers from 0, got 1.5"),
        ({"targets": {"nodes": [True]}}, "targets.nodes must hold integers from 0, got True"),
        ({"targets": {"nodes": [10**30]}}, "targets.nodes must hold integers from 0"),
        ({"targets": {"edges": [[1, 2, 3]]}}, "targets.edges must be a list of pairs"),
        ({"targets": {"features": [3]}}, "targets.features must hold objects with 'nodes'"),
        ({"targets": {"features": {"0": {"nodes": [1], "fill": "mean"}}}}, "targets.features.0 must hold objects"),
        ({"targets": {"vertices": [1]}}, "targets.vertices is unknown; choose clients, nodes, edges, features"),
        ({"targets": {}}, "nothing to forget in it"),
        ({"targets": []}, "targets must be an object"),
        ({"nodes": [1]}, "unknown key 'nodes'"),
        ({"schema": "other/2", "targets": {"nodes": [1]}}, "schema 'other/2' is not"),
        ({"request_id": "0", "targets": {"nodes": [1]}}, "'dataset' or 'federation' is incomplete"),
        ([], "must hold one JSON object"),
    ],
)
def test_impossible_files(tmp_path, content, message):
    path = saved(tmp_path, content)
    with pytest.raises(RequestError, match=message) as caught:
        read_request(path, GRAPHS, NAME)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"request.path {path}")


def test_unreadable_files(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        read_request(tmp_path / "none.json", GRAPHS, NAME)
    path = tmp_path / "request.json"
    for text, message in (('{"targets": {', "no valid JSON"), ('{"a": 1, "a": 2}', "has a key twice")):
        path.write_text(text)
        with pytest.raises(RequestError, match=message):
            read_request(path, GRAPHS, NAME)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="no UTF-8 text"):
        read_request(path, GRAPHS, NAME)


def test_pool_all_allows_any_node(tmp_path):
    path = saved(tmp_path, {"targets": {"nodes": [TEST[0][0]]}})
    request = read_request(path, GRAPHS, NAME, pool="all")
    assert request.nodes == {0: (TEST[0][0],)}
    request.write(tmp_path / "written.json")
    assert read_request(tmp_path / "written.json", GRAPHS, NAME) == request, "what was accepted once stays accepted"


def test_no_client_left_that_can_train():
    masks = {**GRAPHS.masks, "train": GRAPHS.masks["train"] & (GRAPHS.client == 0)}
    graphs = changed(masks=masks)
    request = UnlearningRequest((0,), {}, {}, {}, RequestContext.of(graphs, NAME))
    with pytest.raises(RequestError, match="none of the clients that stay has a training node"):
        check_request(graphs, request, "request")


def test_a_large_request_is_fast(tmp_path):
    """A tenth of the edges and nodes of a graph as large as ogbn-arxiv takes seconds, not minutes."""
    rng = np.random.default_rng(0)
    n, clients = 20_000, 5
    edges = rng.integers(0, n, (2, 150_000))
    edges = edges[:, edges[0] != edges[1]]
    edges = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    graphs = ClientGraphs.from_assignment(
        torch.ones(n, 4),
        torch.from_numpy(edges),
        torch.zeros(n, dtype=torch.int64),
        torch.arange(n) % clients,
        {name: torch.arange(n) // clients % 3 == rest for rest, name in enumerate(("train", "val", "test"))},
        2,
        clients,
    )
    targets = {slot: tuple(undirected(graphs, slot)[::10]) for slot in range(clients)}
    request = UnlearningRequest((), {}, targets, {}, RequestContext.of(graphs, NAME))
    request.write(tmp_path / "request.json")
    again = read_request(tmp_path / "request.json", graphs, NAME)
    assert apply_request(graphs, again).edge_index.shape[1] == graphs.edge_index.shape[1] - 2 * request.num_edges
