"""Every backbone: equal to stock PyG layers, pruned or whole, stacked or alone, sparse or dense."""

import pytest
import torch
from plain_loop import ARCHITECTURES, PlainModel, from_plain, to_plain
from rounds import plain_graphs
from small_graphs import LABELS, WIDTH, WORDS, different_models, make_backbone, small_graphs
from torch.autograd import gradcheck
from torch.func import functional_call

from page_lightning.federation.dense import DenseFlow
from page_lightning.federation.randomness import DropoutStream

CASES = [
    *((a, {}) for a in ARCHITECTURES),
    ("GAT", {"heads": 3}),
    ("GCN", {"num_layers": 3}),
    ("GCN", {"norm": "layer"}),
    ("GAT", {"norm": "layer", "num_layers": 3}),
    ("GIN", {"norm": "layer"}),
    ("SGC", {"num_layers": 3}),
    ("MLP", {"num_layers": 1}),
]
each_case = pytest.mark.parametrize(("architecture", "options"), CASES)
each_input = pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])


def plain_model(architecture, options, state):
    arguments = {key: value for key, value in options.items() if key != "norm"}
    model = PlainModel(
        architecture, WORDS, LABELS, WIDTH, dropout=0.0, layer_norm=options.get("norm") == "layer", **arguments
    ).double()
    model.load_state_dict(to_plain(architecture, state))
    return model


def run_stacked(backbone, models, flow, noise=None):
    flow.noise = noise
    output = functional_call(backbone, models, (flow,))
    flow.noise = None
    return output


def client(models, slot):
    return {name: tensor[slot] for name, tensor in models.items()}


@each_case
def test_names_go_both_ways(architecture, options):
    state = dict(make_backbone(architecture, **options).state_dict())
    back = from_plain(architecture, plain_model(architecture, options, state).state_dict())
    assert back.keys() == state.keys()
    assert all(back[name].equal(tensor) for name, tensor in state.items())


@each_input
@each_case
def test_equals_pyg(architecture, options, sparse):
    graphs = small_graphs((17, 0, 9, 14), sparse=sparse)
    backbone = make_backbone(architecture, **options)
    models = different_models(backbone, 4)
    _, logits = run_stacked(backbone, models, graphs.flow(backbone.num_hops, torch.float64))
    references = [
        plain_model(architecture, options, client(models, slot))(graph.x, graph.edge_index)
        for slot, graph in enumerate(plain_graphs(graphs, torch.float64))
        if len(graph.y)
    ]
    torch.testing.assert_close(logits, torch.cat(references), rtol=1e-10, atol=1e-10)


@each_input
@each_case
def test_shared_model_equals_the_same_model_on_every_client(architecture, options, sparse):
    graphs = small_graphs(sparse=sparse)
    backbone = make_backbone(architecture, **options)
    flow = graphs.flow(backbone.num_hops, torch.float64)
    models = {name: p.detach().expand(3, *p.shape) for name, p in backbone.named_parameters()}
    for shared, stacked in zip(backbone(flow), run_stacked(backbone, models, flow), strict=True):
        torch.testing.assert_close(shared, stacked, rtol=1e-10, atol=1e-10)


@each_input
@each_case
def test_pruned_flow_gives_the_training_rows(architecture, options, sparse):
    graphs = small_graphs(sparse=sparse)
    backbone = make_backbone(architecture, **options)
    models = different_models(backbone, 3)
    whole = run_stacked(backbone, models, graphs.flow(backbone.num_hops, torch.float64))
    flow = graphs.flow(backbone.num_hops, torch.float64, "train")
    assert flow.target_index.equal(graphs.masks["train"].nonzero().flatten())
    for part, full in zip(run_stacked(backbone, models, flow), whole, strict=True):
        torch.testing.assert_close(part, full[graphs.masks["train"]], rtol=1e-10, atol=1e-10)


@each_case
def test_stacked_equals_each_client_alone_with_dropout(architecture, options):
    graphs = small_graphs()
    backbone = make_backbone(architecture, dropout=0.4, **options)
    models = different_models(backbone, 3)

    def run(part, slots):
        chosen = {name: tensor[slots] for name, tensor in models.items()}
        noise = DropoutStream(5, part.clients, 1)
        return run_stacked(backbone, chosen, part.flow(backbone.num_hops, torch.float64, "train"), noise)

    together = run(graphs, [0, 1, 2])
    alone = [run(graphs.select([slot]), [slot]) for slot in range(3)]
    for index, both in enumerate(together):
        torch.testing.assert_close(both, torch.cat([one[index] for one in alone]), rtol=1e-10, atol=1e-10)
    if len(dict(backbone.named_parameters())) > 2:  # a hidden layer, hence dropout
        still = run_stacked(backbone, models, graphs.flow(backbone.num_hops, torch.float64, "train"))
        assert not torch.allclose(still[1], together[1])


def dense_adjacency(graphs):
    """Each client's adjacency, one client after the other."""
    result = []
    for graph in plain_graphs(graphs, torch.float64):
        adjacency = torch.zeros(len(graph.y), len(graph.y), dtype=torch.float64)
        adjacency[graph.edge_index[1], graph.edge_index[0]] = 1
        result.append(adjacency)
    return torch.stack(result)


@each_case
def test_dense_adjacency_gives_the_same_outputs(architecture, options):
    graphs = small_graphs((11, 11, 11))
    backbone = make_backbone(architecture, **options)
    models = different_models(backbone, 3)
    flow = DenseFlow(graphs.x.to_dense().view(3, 11, WORDS), dense_adjacency(graphs), backbone.num_hops)
    sparse_flow = graphs.flow(backbone.num_hops, torch.float64)
    for dense, sparse in zip(
        run_stacked(backbone, models, flow), run_stacked(backbone, models, sparse_flow), strict=True
    ):
        torch.testing.assert_close(dense, sparse, rtol=1e-10, atol=1e-10)


@each_case
def test_gradients_reach_dense_adjacency_and_features(architecture, options):
    """Weights strictly inside (0, 1) and finite differences: smooth enough away from the kinks of ReLU."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 4, WORDS, dtype=torch.float64, generator=generator).requires_grad_()
    adjacency = torch.rand(2, 4, 4, dtype=torch.float64, generator=generator) * 0.8 + 0.1
    adjacency = (adjacency * (1 - torch.eye(4))).requires_grad_()
    backbone = make_backbone(architecture, **options).requires_grad_(False)

    def logits(features, edges):
        edges = edges * (1 - torch.eye(4, dtype=torch.float64))  # the diagonal is the flow's own
        return backbone(DenseFlow(features, edges, backbone.num_hops))[1]

    assert gradcheck(logits, (x, adjacency))


@each_case
def test_gradients_at_isolated_nodes_are_finite(architecture, options):
    x = torch.rand(1, 4, WORDS, dtype=torch.float64, requires_grad=True)
    adjacency = torch.zeros(1, 4, 4, dtype=torch.float64, requires_grad=True)
    backbone = make_backbone(architecture, **options)
    loss = backbone(DenseFlow(x, adjacency, backbone.num_hops))[1].square().sum()
    inputs = [x] if architecture == "MLP" else [x, adjacency]
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, inputs))
