"""FUSED against a plain loop over clients; what it freezes stays frozen, bit for bit."""

import pytest
import torch
from tiny import TINY

from page_lightning.audit.lineage import model_sha256
from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import FUSED, unlearn
from page_lightning.modules.ensemble import train_ensemble

RECIPE = Recipe(optimizer=OptimizerOptions("SGD", 0.3, 0.01, {"momentum": 0.9}))


@pytest.fixture(scope="module")
def trained():
    data = FederatedGraphDataModule(num_clients=4, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    start = Federation.create(GCN(8, dropout=0.0), 120, 3, 4, RECIPE, torch.float64)
    return train_ensemble(start, data.graphs, [0], 6)[0], data.graphs


def job(trained, clients=(1,)):
    federation, graphs = trained
    request = RequestOptions("client", clients=list(clients)).build(graphs, "csbm")
    return federation, graphs, apply_request(graphs, request), request


@pytest.mark.parametrize("clients", [(1,), (0, 2), (0, 1, 3)])
def test_a_sparse_adapter_equals_a_plain_loop(trained, clients):
    federation, _, retained, _ = job(trained, clients)
    method = FUSED(rounds=2, density=0.3)
    found = unlearn(method, *job(trained, clients))
    masks = method._masks()
    staying = [slot for slot in range(4) if slot not in clients]
    weights = client_weights(retained, "nodes", staying)
    base = {name: tensor.clone() for name, tensor in federation.server_state().items()}
    additions = {name: torch.zeros_like(base[name]) for name in method.additions}
    for _ in range(2):
        total = {name: torch.zeros_like(tensor) for name, tensor in additions.items()}
        for slot in staying:
            graphs = retained.select([slot])
            flow = graphs.flow(2, torch.float64, "train")
            own = {name: tensor.clone().requires_grad_() for name, tensor in additions.items()}
            optimizer = torch.optim.SGD(own.values(), lr=0.3, weight_decay=0.01, momentum=0.9)
            for _ in range(3):
                optimizer.zero_grad()
                model = {n: t + own[n] * masks[n] if n in own else t for n, t in base.items()}
                logits = torch.func.functional_call(federation.server, model, (flow,))[1]
                torch.nn.functional.cross_entropy(logits, graphs.y[flow.target_index]).backward()
                optimizer.step()
            for name, tensor in own.items():
                total[name] += weights[slot] * tensor.detach()
        additions = total
    for name, tensor in found.server_state().items():
        wanted = base[name] + additions[name] if name in additions else base[name]
        torch.testing.assert_close(tensor, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("adapter", ["sparse", "low_rank"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_dropping_the_adapter_restores_the_model_bit_for_bit(trained, adapter, optimizer):
    federation, graphs, retained, request = job(trained)
    federation = federation.clone()
    federation.recipe = Recipe(optimizer=OptimizerOptions(optimizer, 0.05, 0.1))
    before = model_sha256(federation)
    method = FUSED(adapter, rounds=3, rank=2)
    found = unlearn(method, federation, graphs, retained, request)
    assert model_sha256(method.without_adapter()) == before
    for name, tensor in found.server_state().items():
        addition = method.additions.get(name)
        if addition is None:
            assert torch.equal(tensor, federation.server_state()[name]), name
        else:
            assert addition.any()
            assert torch.equal(tensor, federation.server_state()[name] + addition)


def test_entries_outside_the_mask_stay_zero(trained):
    method = FUSED(rounds=4, density=0.2)
    unlearn(method, *job(trained))
    for name, mask in method._masks().items():
        assert not method.additions[name][~mask].any()
        assert 0.1 < mask.double().mean() < 0.3
        assert method.additions[name][mask].any()


def test_what_is_sent_is_what_may_change(trained):
    method = FUSED(rounds=1, density=0.2)
    unlearn(method, *job(trained))
    sizes = [entry.bytes for entry in method.channel.ledger if entry.kind == "adapter"]
    count = sum(int(mask.sum()) for mask in method._masks().values())
    assert sizes == [3 * 8 * count] * 2
    low = FUSED("low_rank", rounds=1, rank=2)
    unlearn(low, *job(trained))
    up = [entry.bytes for entry in low.channel.ledger if entry.kind == "adapter" and entry.direction == "up"]
    assert up == [3 * 8 * (120 * 2 + 2 * 8 + 8 * 2 + 2 * 3)]


def test_the_mean_of_products_is_averaged(trained):
    found = unlearn(FUSED("low_rank", rounds=2, rank=3), *job(trained))
    weights = client_weights(job(trained)[2], "nodes", [0, 2, 3])
    for name, tensor in found.server_state().items():
        mean = torch.tensordot(weights, found.client_state()[name], 1)
        torch.testing.assert_close(tensor, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reduction", ["sum", "mean", "relative"])
def test_critical_layers_are_those_that_change_most(trained, reduction):
    federation, _, retained, _ = job(trained)
    method = FUSED(rounds=1, layers=1, reduction=reduction)
    unlearn(method, *job(trained))
    score = {"layers.0.weight": 0.0, "layers.1.weight": 0.0}
    weights = client_weights(retained, "nodes", [0, 2, 3])
    for slot in (0, 2, 3):
        graphs = retained.select([slot])
        flow = graphs.flow(2, torch.float64, "train")
        model = {name: tensor.clone().requires_grad_() for name, tensor in federation.server_state().items()}
        logits = torch.func.functional_call(federation.server, model, (flow,))[1]
        torch.nn.functional.cross_entropy(logits, graphs.y[flow.target_index]).backward()
        for name in score:
            size = {"sum": 1, "mean": model[name].numel(), "relative": model[name].abs().sum()}[reduction]
            score[name] += float(weights[slot] * (0.3 * model[name].grad).abs().sum() / size)
    assert list(method.additions) == [max(score, key=score.get)]


def test_a_leavers_data_is_not_read(trained):
    federation, graphs, retained, request = job(trained)
    wanted = unlearn(FUSED(rounds=2), federation, graphs, retained, request)
    x = graphs.x.to_dense().clone()
    x[graphs.client == 1] = torch.nan
    spoilt = ClientGraphs(x, graphs.edge_index, graphs.y, graphs.sizes, graphs.node_id, graphs.masks, 3)
    found = unlearn(FUSED(rounds=2), federation, spoilt, retained, request)
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name]), name


@pytest.mark.parametrize("options", [{"density": 0.0}, {"rounds": 0}, {"rank": 0}, {"layers": 0}])
def test_bad_options(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        FUSED(**options)
