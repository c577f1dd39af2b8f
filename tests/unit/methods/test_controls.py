"""The controls: Retrain reads nothing of what was forgotten and repeats the training bit for bit."""

from dataclasses import replace

import pytest
import torch
from small_graphs import small_graphs

from page_lightning.backbones import GCN
from page_lightning.csr import csr_from_scipy, csr_to_scipy
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestContext, RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import FineTune, GradientAscent, NoOp, Retrain, unlearn
from page_lightning.modules.rounds import FederatedRounds

RECIPES = [
    Recipe(local_epochs=2),
    Recipe(2, participation=0.5),
    Recipe(2, server_optimizer=OptimizerOptions("SGD", 0.8, 0.0, {"momentum": 0.5})),
]


def train(graphs, recipe=RECIPES[0], rounds=3):
    federation = Federation.create(GCN(6), graphs.num_features, graphs.num_classes, graphs.num_clients, recipe)
    training = FederatedRounds(federation, recipe, Channel())
    optimizer = recipe.server_optimizer.build(federation.server.parameters())
    for number in range(rounds):
        training.run(graphs, number, optimizer)
    federation.trained_rounds = rounds
    return federation


def forget(method, graphs, federation, retained=None, **options):
    request = RequestOptions(**options).build(graphs, "small")
    return unlearn(method, federation, graphs, retained or apply_request(graphs, request), request)


def same(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


@pytest.mark.parametrize("recipe", RECIPES, ids=["plain", "participation", "momentum"])
def test_retraining_without_a_request_is_the_original_bit_for_bit(recipe):
    graphs = small_graphs()
    original = train(graphs, recipe)
    assert same(forget(Retrain(), graphs, original, ratio=0.0), original)
    assert not same(forget(Retrain(), graphs, original, ratio=0.2), original)


def garbled(graphs, request):
    """The same graphs, but whatever the request names is nonsense: features NaN, labels and edges others."""
    gone = torch.isin(graphs.client, torch.tensor(request.clients, dtype=torch.int64))
    named = [node for nodes in request.nodes.values() for node in nodes]
    gone |= torch.isin(graphs.node_id, torch.tensor(named, dtype=torch.int64))
    blank = [node for targets in request.features.values() for target in targets for node in target.nodes]
    blank = gone | torch.isin(graphs.node_id, torch.tensor(blank, dtype=torch.int64))
    matrix = csr_to_scipy(graphs.x).tolil()
    matrix[blank.numpy()] = float("nan")
    y = torch.where(gone, (graphs.y + 1) % graphs.num_classes, graphs.y)
    edges = graphs.edge_index[:, ~gone[graphs.edge_index].any(0)]
    for one in gone.nonzero().squeeze(1)[:1]:  # joined to everyone at its client
        others = ((graphs.client == graphs.client[one]) & (torch.arange(graphs.num_nodes) != one)).nonzero().squeeze(1)
        extra = torch.stack([one.expand(len(others)), others])
        edges = torch.cat([edges, extra, extra.flip(0)], 1).unique(dim=1)
    edges = edges[:, torch.argsort(edges[1] * graphs.num_nodes + edges[0])]
    x = csr_from_scipy(matrix.tocsr())
    return ClientGraphs(x, edges, y, graphs.sizes, graphs.node_id, graphs.masks, graphs.num_classes)


@pytest.mark.parametrize(
    "options",
    [{"kind": "node", "count": 2}, {"kind": "feature", "count": 2}, {"kind": "client", "clients": [1]}],
    ids=lambda options: options["kind"],
)
def test_retrain_does_not_see_what_was_forgotten(options):
    graphs = small_graphs()
    original = train(graphs)
    expected = forget(Retrain(), graphs, original, **options)
    request = RequestOptions(**options).build(graphs, "small")
    nonsense = garbled(graphs, request)
    context = RequestContext.of(nonsense, "small")
    assert context.data_sha256 != request.context.data_sha256
    retained = apply_request(nonsense, replace(request, context=context))
    for graphs_given, what_is_left in ((nonsense, retained), (nonsense, apply_request(graphs, request))):
        assert same(unlearn(Retrain(), original, graphs_given, what_is_left, request), expected)


def test_retrain_of_an_edge_request_reads_the_retained_graphs_alone():
    graphs = small_graphs()
    original = train(graphs)
    expected = forget(Retrain(), graphs, original, kind="edge", ratio=0.3, pool="all")
    request = RequestOptions("edge", ratio=0.3, pool="all").build(graphs, "small")
    nonsense = garbled(graphs, RequestOptions("node", ratio=0.5).build(graphs, "small"))
    assert same(unlearn(Retrain(), original, nonsense, apply_request(graphs, request), request), expected)


def test_a_truncated_retraining_is_its_first_rounds():
    graphs = small_graphs()
    original = train(graphs)
    retained = apply_request(graphs, RequestOptions(ratio=0.2).build(graphs, "small"))
    for rounds in (1, 2, 3):
        assert same(forget(Retrain(rounds), graphs, original, ratio=0.2), train(retained, rounds=rounds))
    assert Retrain(2).row_name == "retrain@2"
    assert Retrain().row_name == "retrain"


@pytest.mark.parametrize("seed", [1, 2])
def test_retrain_starts_from_the_originals_own_seed(seed):
    graphs, recipe = small_graphs(), Recipe(local_epochs=2, seed=seed)
    retained = apply_request(graphs, RequestOptions(ratio=0.2).build(graphs, "small"))
    assert same(forget(Retrain(), graphs, train(graphs, recipe), ratio=0.2), train(retained, recipe))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fine_tuning_continues_the_training(seed):
    recipe = Recipe(local_epochs=2, optimizer_state="reset", seed=seed)
    graphs = small_graphs()
    assert same(forget(FineTune(2), graphs, train(graphs, recipe), ratio=0.0), train(graphs, recipe, rounds=5))


def test_gradient_ascent_raises_the_loss_of_the_forgotten_nodes():
    graphs = small_graphs()
    original = train(graphs, rounds=20)
    result = forget(GradientAscent(5, 1e-2), graphs, original, count=2)
    nodes = [n for found in RequestOptions(count=2).build(graphs, "small").nodes.values() for n in found]
    rows = torch.isin(graphs.node_id, torch.tensor(nodes))
    before, after = (
        torch.nn.functional.cross_entropy(f.run_clients(graphs.flow(2, torch.float32))[1][rows], graphs.y[rows])
        for f in (original, result)
    )
    assert after > before + 0.01


def test_no_op_does_nothing():
    graphs = small_graphs()
    original = train(graphs)
    assert same(forget(NoOp(), graphs, original, ratio=0.3), original)


@pytest.mark.parametrize(("method", "options"), [(Retrain, {"rounds": 0}), (FineTune, {"rounds": 0})])
def test_no_rounds_at_all(method, options):
    with pytest.raises(ConfigurationError, match=f"rounds of {method.__name__} is 0"):
        method(**options)
