"""GIF against models trained to the optimum without the data, where the loss is convex."""

import pytest
import torch
from torch.func import functional_call

from page_lightning.backbones import GCN, SGC
from page_lightning.curvature import ClientLoss
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.affected_nodes import affected_nodes
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import GIF, InfluencedUnlearning, unlearn
from page_lightning.methods.page import PAGE
from page_lightning.modules.ensemble import train_ensemble

SOURCE = {"class_sizes": [220, 200, 180], "num_edges": 1800, "num_words": 60, "words_per_node": 8}
RECIPE = Recipe(optimizer=OptimizerOptions("SGD", 0.1, 0.0), ridge=0.1)


@pytest.fixture(scope="module")
def graphs():
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=SOURCE)
    data.setup()
    return data.graphs


def optimum(backbone, graphs, slots, weights):
    """The least weighted sum of mean losses with ridge over some clients, by L-BFGS."""
    parts = [graphs.select([slot]) for slot in slots]
    flows = [part.flow(backbone.num_hops, torch.float64, "train") for part in parts]
    model = {n: torch.zeros_like(p).requires_grad_() for n, p in backbone.named_parameters()}
    optimizer = torch.optim.LBFGS(
        model.values(), max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        total = sum(RECIPE.ridge / 2 * p.square().sum() for p in model.values())
        for part, flow, weight in zip(parts, flows, weights, strict=True):
            logits = functional_call(backbone, model, (flow,))[1]
            total = total + weight * torch.nn.functional.cross_entropy(logits, part.y[flow.target_index])
        total.backward()
        return total

    optimizer.step(loss)
    return {name: tensor.detach() for name, tensor in model.items()}


def flat(model):
    return torch.cat([tensor.flatten() for tensor in model.values()])


def federation_of(graphs, server=None, clients=None):
    federation = Federation.create(SGC(), graphs.num_features, 3, 3, RECIPE, torch.float64)
    federation.trained_rounds = 1
    if server is not None:
        federation.set_server(server)
    for slot, model in enumerate(clients or []):
        federation.put([slot], {name: tensor.unsqueeze(0) for name, tensor in model.items()})
    return federation


@pytest.mark.parametrize("solver", ["cg", "lissa"])
@pytest.mark.parametrize("kind", ["node", "edge", "feature"])
def test_a_client_lands_at_its_retrained_optimum(graphs, kind, solver):
    backbone = federation_of(graphs).server
    before = [optimum(backbone, graphs, [slot], [1.0]) for slot in range(3)]
    federation = federation_of(graphs, clients=before)
    request = RequestOptions(kind, ratio=0.1, seed=1).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    options = {"iterations": 600} if solver == "lissa" else {}
    errors = {}
    for hessian in ("new", "old"):
        found = unlearn(GIF("local", hessian=hessian, solver=solver, **options), federation, graphs, retained, request)
        for slot in request.touched:
            after = flat(optimum(backbone, retained, [slot], [1.0]))
            ours = flat({name: tensor[0] for name, tensor in found.client_state([slot]).items()})
            start = flat(before[slot])
            errors.setdefault(hessian, []).append(float((ours - after).norm() / (start - after).norm()))
    assert max(errors["new"]) < 0.03
    assert max(errors["old"]) < 0.5
    assert sum(errors["new"]) < sum(errors["old"])


@pytest.mark.parametrize("kind", ["node", "edge", "feature"])
def test_the_server_lands_at_the_federations_retrained_optimum(graphs, kind):
    request = RequestOptions(kind, ratio=0.1, seed=1).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    backbone = federation_of(graphs).server
    ends = [
        optimum(backbone, each, [0, 1, 2], client_weights(each, "nodes", [0, 1, 2]).tolist())
        for each in (graphs, retained)
    ]
    federation = federation_of(graphs, server=ends[0])
    method = GIF("server")
    found = unlearn(method, federation, graphs, retained, request)
    start, after = (flat(end) for end in ends)
    assert float((flat(found.server_state()) - after).norm() / (start - after).norm()) < 0.02
    products = [entry for entry in method.channel.ledger if entry.kind == "vector" and entry.direction == "up"]
    assert products
    assert {entry.bytes for entry in products} == {3 * 8 * len(start)}


def test_affected_nodes_alone_give_the_whole_gradient_difference(graphs):
    request = RequestOptions("node", ratio=0.1, seed=1).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    start = Federation.create(GCN(8), graphs.num_features, 3, 3, RECIPE, torch.float64)
    federation = train_ensemble(start, graphs, [0], 3)[0]
    models, server = federation.client_state(), federation.server
    affected = affected_nodes(graphs, request, 2, degree_normalized=True)
    left = torch.isin(retained.node_id, graphs.node_id[affected])
    whole = (
        ClientLoss(server, models, graphs, graphs.masks["train"]).gradient()
        - ClientLoss(server, models, retained, retained.masks["train"]).gradient()
    )
    part = (
        ClientLoss(server, models, graphs, affected & graphs.masks["train"]).gradient()
        - ClientLoss(server, models, retained, left & retained.masks["train"]).gradient()
    )
    torch.testing.assert_close(part, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("protocol", ["local", "average", "recover", "server"])
def test_protocols(graphs, protocol):
    start = Federation.create(GCN(8), graphs.num_features, 3, 3, RECIPE, torch.float64)
    federation = train_ensemble(start, graphs, [0], 3)[0]
    request = RequestOptions("node", count=4, clients=[0]).build(graphs, "csbm")
    method = GIF(protocol, rounds=2)
    found = unlearn(method, federation, graphs, apply_request(graphs, request), request)
    assert [phase.name for phase in method.phases(request)] == ["influence", "recovery"][: 1 + (protocol == "recover")]
    same = all(torch.equal(t, federation.server_state()[n]) for n, t in found.server_state().items())
    assert same == (protocol == "local")
    assert found.trained_rounds == 3 + 2 * (protocol == "recover")
    others = [
        torch.equal(tensor[1:], federation.client_state()[name][1:]) for name, tensor in found.client_state().items()
    ]
    assert all(others) == (protocol in {"local", "average"})


def test_labels_outside_training_are_not_read(graphs):
    start = Federation.create(GCN(8), graphs.num_features, 3, 3, RECIPE, torch.float64)
    federation = train_ensemble(start, graphs, [0], 3)[0]
    request = RequestOptions("node", ratio=0.1).build(graphs, "csbm")

    def spoilt(each):
        y = torch.where(each.masks["train"], each.y, (each.y + 1) % 3)
        return ClientGraphs(each.x, each.edge_index, y, each.sizes, each.node_id, each.masks, 3)

    retained = apply_request(graphs, request)
    wanted = unlearn(GIF(), federation, graphs, retained, request)
    found = unlearn(GIF(), federation, spoilt(graphs), spoilt(retained), request)
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name]), name


def test_alarms(graphs):
    start = Federation.create(GCN(8), graphs.num_features, 3, 3, RECIPE, torch.float64)
    federation = train_ensemble(start, graphs, [0], 3)[0]
    request = RequestOptions("node", count=4, clients=[0]).build(graphs, "csbm")
    job = federation, graphs, apply_request(graphs, request), request
    with pytest.warns(UserWarning, match=r"GIF diverged on clients \[0\]"):
        found = unlearn(GIF(solver="lissa", scale=1e-3, iterations=400), *job)
    for name, tensor in found.client_state().items():
        assert torch.equal(tensor, federation.client_state()[name])
    with pytest.warns(UserWarning, match=r"GIF changed nothing on clients \[0\]"):
        unlearn(GIF(solver="lissa", scale=1e9), *job)


def test_influenced_clients_may_follow(graphs):
    start = Federation.create(GCN(8), graphs.num_features, 3, 3, RECIPE)
    federation = train_ensemble(start, graphs, [0], 3)[0]
    request = RequestOptions("node", count=4, clients=[0]).build(graphs, "csbm")
    method = InfluencedUnlearning(GIF(), PAGE("fixed", graph_nodes=12, graph_steps=3, distill_epochs=1))
    found = unlearn(method, federation, graphs, apply_request(graphs, request), request)
    assert method.row_name == "gif+influenced"
    assert any(not torch.equal(t, federation.client_state()[n]) for n, t in found.client_state().items())


@pytest.mark.parametrize("options", [{"rounds": 0}, {"iterations": 0}, {"damping": -1.0}, {"scale": 0.0}])
def test_bad_options(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        GIF(**options)
