from collections import Counter

import jsonargparse
import numpy as np
import pytest
import torch
from request_cases import NAME, random_graphs, undirected

from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import FeatureTarget, RequestContext, RequestOptions, UnlearningRequest, read_request
from page_lightning.data.streams import keys
from page_lightning.errors import RequestError
from page_lightning.federation.randomness import stream_key

GRAPHS = random_graphs(21, (40, 25, 60))
TRAIN = [set(GRAPHS.node_id[(GRAPHS.client == slot) & GRAPHS.masks["train"]].tolist()) for slot in range(3)]
NODES = [set(GRAPHS.node_id[GRAPHS.client == slot].tolist()) for slot in range(3)]


def build(graphs=GRAPHS, **options) -> UnlearningRequest:
    return RequestOptions(**options).build(graphs, NAME)


def test_the_default_is_a_tenth_of_each_clients_training_nodes():
    request = RequestOptions().build(GRAPHS, NAME)
    assert request.kinds == {"node"}
    for slot, train in enumerate(TRAIN):
        assert len(request.nodes[slot]) == max(1, len(train) // 10)
        assert set(request.nodes[slot]) <= train
    assert request.selection["mode"] == "random"
    assert request.selection["ratio"] == 0.1


@pytest.mark.parametrize("pool", ["train", "all"])
@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.29, 0.5])
def test_sizes_of_each_kind(pool, ratio):
    pools = TRAIN if pool == "train" else NODES
    for slot, nodes in enumerate(pools):
        edges = [edge for edge in undirected(GRAPHS, slot) if nodes.issuperset(edge)]
        expected = {size: max(int(ratio * size + 1e-9), int(ratio > 0)) for size in (len(nodes), len(edges))}
        node, edge, feature = (build(kind=kind, ratio=ratio, pool=pool) for kind in ("node", "edge", "feature"))
        assert len(node.nodes.get(slot, ())) == expected[len(nodes)]
        assert set(node.nodes.get(slot, ())) <= nodes
        assert len(edge.edges.get(slot, ())) == expected[len(edges)]
        assert set(edge.edges.get(slot, ())) <= set(edges)
        if ratio:
            (target,) = feature.features[slot]
            assert len(target.nodes) == expected[len(nodes)]
            assert target.columns is None
            assert set(target.nodes) <= nodes
        assert (node.is_empty, edge.is_empty, feature.is_empty) == (ratio == 0,) * 3


def test_counts_and_clients():
    assert build(count=3, clients=[2, 0]).touched == (0, 2)
    assert build(count=3, clients=[2, 0]).num_nodes == 6
    assert build(count=4, kind="edge", pool="all").num_edges == 12
    assert build(count=0).is_empty
    assert len(build(kind="client", count=2).clients) == 2
    assert len(build(kind="client").clients) == 1
    assert len(build(kind="client", ratio=0.6).clients) == 2
    assert build(kind="client", ratio=0.0).is_empty
    assert build(kind="client", clients=[1, 0, 1]).clients == (0, 1)


@pytest.mark.parametrize("kind", ["node", "edge", "feature"])
def test_a_client_does_not_depend_on_the_others(kind):
    """Neither on who is asked, nor on who else is there."""
    alone, together = build(kind=kind, ratio=0.3, clients=[1]), build(kind=kind, ratio=0.3)
    gone = apply_request(GRAPHS, build(kind="client", clients=[0]))
    without = build(gone, kind=kind, ratio=0.3)
    for part in ("nodes", "edges", "features"):
        assert getattr(alone, part).get(1) == getattr(together, part).get(1) == getattr(without, part).get(1)


def test_seeds_and_kinds_draw_apart_and_larger_draws_hold_smaller_ones():
    draws = [build(ratio=0.5, seed=seed).nodes for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][2] != build(ratio=0.5, kind="feature").features[2][0].nodes
    assert set(build(ratio=0.2).nodes[2]) < set(draws[0][2])


def test_every_target_is_equally_likely():
    graphs = random_graphs(22, (12,))
    train = graphs.node_id[graphs.masks["train"]].tolist()
    found = Counter(node for seed in range(600) for node in build(graphs, count=1, seed=seed).nodes[0])
    expected = 600 / len(train)
    assert sum((found[node] - expected) ** 2 / expected for node in train) < 3 * len(train)


def test_the_draw_is_pinned():
    """Equal on every machine: a change of these numbers breaks published requests."""
    assert keys(5, 103, np.array([0, 1])).tolist() == [stream_key(5, 103, 0), stream_key(5, 103, 1)]
    assert keys(5, 103, np.array([0, 1])).tolist() == [9605272431853154711, 13519336241350981135]


def test_scores_choose_the_highest():
    score = torch.arange(GRAPHS.num_nodes) % 7
    request = RequestOptions(count=3).build(GRAPHS, NAME, score)
    rank = dict(zip(GRAPHS.node_id.tolist(), score.tolist(), strict=True))
    for slot, train in enumerate(TRAIN):
        assert sorted(rank[node] for node in request.nodes[slot]) == sorted(rank[node] for node in train)[-3:]
    edges = RequestOptions(kind="edge", count=2, pool="all").build(GRAPHS, NAME, score).edges[0]
    totals = sorted(rank[u] + rank[v] for u, v in undirected(GRAPHS, 0))
    assert sorted(rank[u] + rank[v] for u, v in edges) == totals[-2:]
    assert request.selection["mode"] == "score"
    with pytest.raises(RequestError, match=r"request\.kind client: clients have no scores"):
        RequestOptions(kind="client").build(GRAPHS, NAME, score)


def test_a_single_training_node_is_spared():
    train = GRAPHS.masks["train"].clone()
    mine = (train & (GRAPHS.client == 1)).nonzero().flatten()
    train[mine[1:]] = False
    graphs = type(GRAPHS)(
        GRAPHS.x,
        GRAPHS.edge_index,
        GRAPHS.y,
        GRAPHS.sizes,
        GRAPHS.node_id,
        {**GRAPHS.masks, "train": train},
        GRAPHS.num_classes,
    )
    assert build(graphs).touched == (0, 2)
    assert build(graphs, kind="feature").touched == (0, 1, 2)
    with pytest.raises(RequestError, match=r"request\.pool train: the chosen clients have no training nodes"):
        build(graphs, clients=[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.1, "count": 3}, r"request.ratio 0.1 and request.count 3 contradict each other"),
        ({"ratio": 1.5}, "request.ratio 1.5 must be between 0 and 1"),
        ({"ratio": float("nan")}, "request.ratio nan must be between 0 and 1"),
        ({"count": -1}, "request.count -1"),
        ({"seed": -1}, "request.seed -1 must not be negative"),
        ({"path": "a.json", "ratio": 0.1}, "request.path a.json names the targets"),
        ({"path": "a.json", "clients": [1]}, "request.path a.json names the targets"),
        ({"kind": "client", "clients": [1], "count": 1}, "request.clients names the clients that leave"),
        ({"clients": [9]}, "request.clients: client 9 does not exist"),
        ({"count": 1000}, "request.count 1000: client 0 has only .* training nodes"),
        ({"count": 10**6, "kind": "edge", "pool": "all"}, "request.count 1000000: client 0 has only .* edges"),
        ({"count": 9, "kind": "client"}, "request.count 9: there are only 3 clients"),
        ({"ratio": 1.0}, "request.kind node: client 0 would keep none of its"),
        ({"kind": "client", "ratio": 1.0}, "request.kind client: all clients would leave"),
        ({"kind": "client", "clients": [0, 1, 2]}, "request.kind client: all clients would leave"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(RequestError, match=message) as caught:
        build(**options)
    assert "\n" not in str(caught.value)


def test_a_departed_client_cannot_be_asked_again():
    rest = apply_request(GRAPHS, build(kind="client", clients=[1]))
    assert build(rest).touched == (0, 2)
    assert build(rest, kind="client", ratio=0.5).clients[0] in (0, 2)
    for options in ({"clients": [1]}, {"kind": "client", "clients": [1]}):
        with pytest.raises(RequestError, match=r"request.clients: client 1 has already left"):
            build(rest, **options)


def test_a_drawn_request_survives_its_file(tmp_path):
    request = build(ratio=0.3, pool="all", kind="feature", clients=[0, 2])
    request.write(tmp_path / "request.json")
    again = RequestOptions(path=str(tmp_path / "request.json")).build(GRAPHS, NAME)
    assert again == request == read_request(tmp_path / "request.json", GRAPHS, NAME)
    assert again.selection == request.selection
    assert again.features[0] == (FeatureTarget(request.features[0][0].nodes),)
    assert again.context == RequestContext.of(GRAPHS, NAME)


def test_options_are_a_command_line():
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--request", type=RequestOptions, default=RequestOptions())
    arguments = parser.parse_args(["--request.kind", "edge", "--request.ratio", "0.2", "--request.clients", "[0, 2]"])
    assert parser.instantiate_classes(arguments).request == RequestOptions(kind="edge", ratio=0.2, clients=[0, 2])
    assert parser.instantiate_classes(parser.parse_args([])).request == RequestOptions()
    text = parser.format_help()
    assert "--request.pool" in text
    assert "Draw among training nodes" in text
    with pytest.raises(jsonargparse.ArgumentError):
        parser.parse_args(["--request.kind", "vertex"])
