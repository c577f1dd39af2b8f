"""Federated averaging of the stack against a plain loop over separate PyG models and optimizers."""

import pytest
import torch
from plain_loop import ARCHITECTURES, PlainFederation, PlainModel, from_plain, to_plain
from rounds import OurFederation, largest_difference, plain_graphs
from small_graphs import LABELS, WIDTH, WORDS, make_backbone, small_graphs

from page_lightning.federation.randomness import DropoutStream
from page_lightning.modules import LocalTraining, OptimizerOptions
from page_lightning.modules.stage import run_stage

OPTIMIZERS = {
    "AdamW": OptimizerOptions("AdamW", lr=0.02, weight_decay=0.1),
    "Adam": OptimizerOptions("Adam", lr=0.02, weight_decay=0.01),
    "momentum": OptimizerOptions("SGD", lr=0.1, weight_decay=0.01, args={"momentum": 0.9}),
}
each_input = pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-10, atol=1e-10, msg=name)


def plain_optimizer(options):
    cls = getattr(torch.optim, options.name)
    return lambda parameters: cls(parameters, lr=options.lr, weight_decay=options.weight_decay, **options.args)


@each_input
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_five_rounds_equal_the_plain_loop(architecture, sparse):
    assert largest_difference(architecture, small_graphs(sparse=sparse), torch.float64, rounds=5, epochs=3) <= 1e-10


@each_input
@pytest.mark.parametrize("ridge", [0.0, 0.05], ids=["", "ridge"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_keep_each_clients_own_state(optimizer, ridge, sparse):
    """Also all models after the last round, not the server's alone."""
    options, graphs = OPTIMIZERS[optimizer], small_graphs(sparse=sparse)
    backbone = make_backbone("GCN")
    model = PlainModel("GCN", WORDS, LABELS, WIDTH, dropout=0.0).double()
    model.load_state_dict(to_plain("GCN", backbone.state_dict()))
    plain = PlainFederation(
        model, plain_graphs(graphs, torch.float64), make_optimizer=plain_optimizer(options), ridge=ridge
    )
    ours = OurFederation(backbone, graphs)
    ours.stage = LocalTraining(backbone, graphs, options, ridge)
    for _ in range(4):
        ours.run_round(3)
        plain.run_round(3)
    assert_close(ours.federation.server_state(), from_plain("GCN", plain.server.state_dict()))
    for slot, one in enumerate(plain.models):
        mine = {name: tensor[slot] for name, tensor in ours.federation.client_state().items()}
        assert_close(mine, from_plain("GCN", one.state_dict()))


@pytest.mark.parametrize("ridge", [0.0, 0.05], ids=["", "ridge"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("architecture", ["GCN", "GraphSAGE", "SGC", "GIN"])
def test_layouts_agree_with_dropout(architecture, optimizer, ridge):
    """First-layer rows held once, held for every client, or every client's tensors apart: the same models and state."""
    results = []
    for sparse, separate in ((True, False), (False, False), (True, True)):
        graphs = small_graphs(sparse=sparse)
        backbone = make_backbone(architecture, dropout=0.5)
        stage = LocalTraining(backbone, graphs, OPTIMIZERS[optimizer], ridge, seed=4, separate=separate)
        assert (stage.stack.compact is not None) == (sparse and not separate)
        for number in range(2):
            stage.begin(number, dict(backbone.named_parameters()), keep_optimizer_state=True)
            run_stage(stage, 3)
        state = {f"{n}/{k}": v.double() for n, s in stage.optimizer_state().items() for k, v in s.items()}
        results.append({**stage.stack.canonical(), **state})
    assert_close(results[0], results[1])
    assert_close(results[0], results[2])


@pytest.mark.parametrize("separate", [False, True])
def test_a_client_trains_as_it_would_alone_with_dropout(separate):
    graphs, models = small_graphs(), []
    for part in (graphs, *(graphs.select([slot]) for slot in range(3))):
        stage = LocalTraining(make_backbone("GCN", dropout=0.5), part, seed=2, round=6, separate=separate)
        run_stage(stage, 5)
        models.append(stage.stack.canonical())
    together, *alone = models
    assert_close(together, {name: torch.cat([one[name] for one in alone]) for name in together})


@pytest.mark.parametrize("separate", [False, True])
def test_optimizer_state_resumes(separate):
    graphs, options = small_graphs(), OPTIMIZERS["AdamW"]

    def fresh():
        return LocalTraining(make_backbone("GCN", dropout=0.5), graphs, options, separate=separate)

    through, first, second = fresh(), fresh(), fresh()
    server = {name: p + 1 for name, p in make_backbone("GCN").named_parameters()}
    for stage in (through, first):
        run_stage(stage, 2)
    second.load_optimizer_state(first.optimizer_state())
    for stage in (through, second):
        stage.begin(1, server, keep_optimizer_state=True)
        run_stage(stage, 2)
    for name, tensor in through.stack.canonical().items():
        assert tensor.equal(second.stack.canonical()[name])


def test_reset_optimizer_state_equals_a_fresh_optimizer():
    graphs, backbone = small_graphs(), make_backbone("GCN")
    stage = LocalTraining(backbone, graphs)
    run_stage(stage, 3)
    stage.begin(1, dict(backbone.named_parameters()), keep_optimizer_state=False)
    run_stage(stage, 3)
    again = LocalTraining(backbone, graphs)
    run_stage(again, 3)
    assert_close(stage.stack.canonical(), again.stack.canonical())


def test_dropout_with_the_streams_own_masks_equals_plain_dropout():
    """ReLU and dropout in one multiplication: the mask the stream gives, scaled by 1 / (1 - p)."""
    graphs, probability = small_graphs(), 0.3
    hop = graphs.flow(1, torch.float64).hops[0]
    hop.noise = DropoutStream(0, graphs.clients)
    x = torch.randn(graphs.num_nodes, 5, dtype=torch.float64)
    out = hop.relu_dropout(x, probability)
    hop.noise = None
    keep = DropoutStream(0, graphs.clients).keep(graphs.sizes, 5, probability)
    torch.testing.assert_close(out, x.relu() * keep / (1 - probability))
    assert hop.relu_dropout(x, probability).equal(x.relu())
