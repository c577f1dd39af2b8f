"""Any PyG layer or model as a backbone."""

import pytest
import torch
from rounds import plain_graphs
from small_graphs import LABELS, WORDS, small_graphs
from torch import nn
from torch.func import functional_call
from torch_geometric.nn import GATv2Conv
from torch_geometric.nn import GraphSAGE as PyGGraphSAGE

from page_lightning.backbones import PyGModule
from page_lightning.federation.randomness import DropoutStream
from page_lightning.modules import LocalTraining, OptimizerOptions
from page_lightning.modules.stage import run_stage


def build(module, module_args=None, **options):
    backbone = PyGModule(module, module_args, hidden_channels=6, **options)
    torch.manual_seed(0)
    backbone.build(WORDS, LABELS)
    return backbone.double()


def stacked(backbone, num_clients):
    """Perturbed copies of parameters, plain copies of buffers."""
    generator = torch.Generator().manual_seed(1)
    models = {name: b.expand(num_clients, *b.shape).clone() for name, b in backbone.named_buffers()}
    for name, p in backbone.named_parameters():
        models[name] = p + torch.randn(num_clients, *p.shape, dtype=p.dtype, generator=generator) / 5
    return models


def test_a_layer_is_repeated():
    graphs = small_graphs((17, 0, 9))
    backbone = build("GATv2Conv", norm="layer")
    models = {name: t.detach() for name, t in stacked(backbone, 3).items()}
    embedding, logits = functional_call(backbone, models, (graphs.flow(2, torch.float64),))
    first, second, norm = GATv2Conv(WORDS, 6).double(), GATv2Conv(6, LABELS).double(), nn.LayerNorm(6).double()
    expected = []
    for slot, graph in enumerate(plain_graphs(graphs, torch.float64)):
        if len(graph.y) == 0:
            continue
        for module, prefix in ((first, "layers.0"), (second, "layers.1"), (norm, "norms.0")):
            names = dict(module.named_parameters())
            module.load_state_dict({name: models[f"inner.{prefix}.{name}"][slot] for name in names})
        hidden = norm(first(graph.x, graph.edge_index)).relu()
        expected.append((hidden, second(hidden, graph.edge_index)))
    for ours, theirs in zip((embedding, logits), map(torch.cat, zip(*expected, strict=True)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("together", [True, False], ids=["together", "separate"])
def test_batch_norm_model_trains_as_separate_models(together):
    graphs = small_graphs()
    backbone = build("GraphSAGE", {"norm": "batch_norm"}, dropout=0.0)
    initial = {name.removeprefix("inner."): tensor.clone() for name, tensor in backbone.state_dict().items()}
    # not Adam: a bias before batch norm has no gradient, and Adam would make steps out of its rounding errors
    options = OptimizerOptions("SGD", lr=0.1, weight_decay=0.0, args={"momentum": 0.9})
    stage = LocalTraining(backbone, graphs, options, separate=not together)
    run_stage(stage, 4)
    models = stage.stack.canonical()
    for slot, graph in enumerate(plain_graphs(graphs, torch.float64)):
        model = PyGGraphSAGE(WORDS, 6, 2, LABELS, dropout=0.0, norm="batch_norm").double()
        model.load_state_dict(initial)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            logits = model(graph.x, graph.edge_index)
            nn.functional.cross_entropy(logits[graph.train], graph.y[graph.train]).backward()
            optimizer.step()
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(models[f"inner.{name}"][slot], tensor, rtol=1e-10, atol=1e-10, msg=name)


def test_a_clients_dropout_does_not_depend_on_the_others():
    graphs = small_graphs()
    backbone = build("GATv2Conv", dropout=0.5)

    def run(part):
        flow = part.flow(2, torch.float64)
        flow.noise = DropoutStream(0, part.clients)
        return backbone(flow)[1]

    state = torch.random.get_rng_state()
    together = run(graphs)
    assert torch.random.get_rng_state().equal(state)
    alone = [run(graphs.select([slot])) for slot in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-10)
