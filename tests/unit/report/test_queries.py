"""Which graph every node is queried on, and with which model, against one query at a time."""

from itertools import product

import pytest
import torch
from small_graphs import LABELS, different_models, make_backbone, small_graphs

from page_lightning.audit.queries import GLOBAL, Queries
from page_lightning.data.apply_request import apply_request, forgotten_nodes
from page_lightning.data.requests import RequestContext, RequestOptions, UnlearningRequest
from page_lightning.federation.federation import Federation

LEAVER = 1


def build(kind):
    graphs = small_graphs()
    if kind == "client":
        return graphs, RequestOptions("client", clients=[LEAVER]).build(graphs, "small")
    if kind != "mixture":
        return graphs, RequestOptions(kind, count=2, pool="all" if kind == "edge" else "train").build(graphs, "small")
    parts = [
        RequestOptions(part, count=2, clients=[client], pool="all").build(graphs, "small")
        for part, client in (("node", 0), ("edge", 0), ("feature", 2))
    ]
    nodes, edges, features = parts[0].nodes, parts[1].edges, parts[2].features
    return graphs, UnlearningRequest((), nodes, edges, features, RequestContext.of(graphs, "small"))


def ask(federation, model, graphs, node):
    """One model's logits for one node, on the graph of the client that holds it in some graphs."""
    row = int((graphs.node_id == node).nonzero())
    part = graphs.select([int(graphs.client[row])])
    flow = part.flow(2, torch.float64)
    logits = (federation.run_server(flow) if model == GLOBAL else federation.run_client(model, flow))[1]
    return logits[int((part.node_id == node).nonzero())]


@pytest.mark.parametrize("kind", ["node", "edge", "feature", "client", "mixture"])
def test_every_node_is_asked_on_its_graph(kind):
    graphs, request = build(kind)
    retained = apply_request(graphs, request)
    backbone = make_backbone("GCN")
    federation = Federation(backbone, 3)
    federation.put(range(3), different_models(backbone, 3))
    queries = Queries(graphs, retained, request, 2, torch.float64)
    left = set(retained.node_id.tolist())
    blank = {node for targets in request.features.values() for target in targets for node in target.nodes}

    def expected(model, node):
        """Removed nodes, nodes without features and leavers' nodes: as they were; all others: as they are left."""
        return ask(federation, model, retained if node in left - blank else graphs, node)

    found, ids = queries.logits(federation), graphs.node_id.tolist()
    local, client = queries.local(federation), graphs.client.tolist()
    assert found[GLOBAL].shape == (graphs.num_nodes, LABELS)
    for row, node in enumerate(ids):
        torch.testing.assert_close(found[GLOBAL][row], expected(GLOBAL, node))
        own = GLOBAL if client[row] in request.clients else client[row]
        torch.testing.assert_close(local[row], expected(own, node))
    stay = [slot for slot in range(3) if slot not in request.clients]
    judged = {name for name in found if name != GLOBAL}
    affected = {graphs.client[row].item() for row in forgotten_nodes(graphs, request)}
    assert judged == {f"client {slot}" for slot in stay}
    for name, row in product(judged, range(graphs.num_nodes)):
        slot = int(name.split()[1])
        stranger = kind != "client" and slot not in affected  # has nothing to forget: asked about the others' nodes
        about = bool(queries.forgotten[row] | queries.held_out[row])
        if client[row] == slot or client[row] in request.clients or (stranger and about):
            where = int((queries.sets[name].rows == row).nonzero())
            torch.testing.assert_close(found[name][where], expected(slot, ids[row]))
        else:
            assert row not in queries.sets[name].rows.tolist()
    assert queries.judged_by == (GLOBAL if kind == "client" else "local")


@pytest.mark.parametrize("kind", ["node", "edge", "feature", "client", "mixture"])
def test_roles_of_nodes(kind):
    graphs, request = build(kind)
    retained = apply_request(graphs, request)
    queries = Queries(graphs, retained, request, 2, torch.float64)
    left, train = set(retained.node_id.tolist()), graphs.masks["train"].tolist()
    forgotten = set(graphs.node_id[forgotten_nodes(graphs, request)].tolist())
    for row, (node, client) in enumerate(zip(graphs.node_id.tolist(), graphs.client.tolist(), strict=True)):
        departed = client in request.clients
        assert queries.forgotten[row] == (node in forgotten)
        unseen = not train[row] and (node in left or departed) and node not in forgotten
        assert queries.held_out[row] == (unseen and client in request.touched)
        assert queries.kept_train[row] == (train[row] and node not in forgotten and not departed)
        assert queries.kept_test[row] == (bool(graphs.masks["test"][row]) and node in left)
