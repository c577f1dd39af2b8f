"""FedEraser against a plain loop over clients, and what must hold of a replayed history."""

from dataclasses import replace

import pytest
import torch
from tiny import TINY, history_of

from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.aggregation import client_weights
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.history import History
from page_lightning.federation.messages import Channel
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import FedEraser, Phase, unlearn
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.rounds import FederatedRounds
from page_lightning.modules.stage import run_stage

ROUNDS = 5
RECIPE = Recipe(optimizer=OptimizerOptions("SGD", 0.3, 0.0), optimizer_state="reset")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = FederatedGraphDataModule(num_clients=4, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    start = Federation.create(GCN(8), 120, 3, 4, RECIPE, torch.float64)
    federation = train_ensemble(start, data.graphs, [0], ROUNDS)[0]
    federation.history = history_of(start, data.graphs, ROUNDS, tmp_path_factory.mktemp("history"))
    return federation, data.graphs


def job(trained, clients=(1,)):
    federation, graphs = trained
    request = RequestOptions("client", clients=list(clients)).build(graphs, "csbm")
    return federation, graphs, apply_request(graphs, request), request


def replay(method, trained):
    """Of nobody's leaving."""
    federation, graphs = trained
    request = RequestOptions("node", ratio=0.0).build(graphs, "csbm")
    method.prepare(federation, graphs, graphs, request)
    method.federation = federation.fresh()
    for step in range(len(range(0, ROUNDS, method.interval))):
        method.run_round(Phase("replay", ROUNDS), step)
    return method.federation


@pytest.mark.parametrize("options", [{"variant": "accumulated"}, {"ratio": 1.0}, {"ratio": 1.0, "norm": "tensor"}])
def test_without_leavers_the_history_gives_the_original(trained, options):
    found = replay(FedEraser(interval=1, **options), trained)
    for name, tensor in found.server_state().items():
        torch.testing.assert_close(tensor, trained[0].server_state()[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", ["model", "tensor"])
@pytest.mark.parametrize("clients", [(1,), (0, 2), (0, 1, 3)])
def test_equals_a_plain_loop(trained, clients, norm):
    federation, _, retained, _ = job(trained, clients)
    found = unlearn(FedEraser(interval=2, ratio=0.6, norm=norm), *job(trained, clients))
    staying = [slot for slot in range(4) if slot not in clients]
    weights = client_weights(retained, "nodes", staying)
    model = dict(federation.fresh().server_state())
    for number in (1, 3, 5):
        total = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
        for slot in staying:
            stored, start = federation.history.load(number), federation.history.start(number)
            old = {name: stored[name][slot] - start[name] for name in model}
            new = old
            if number > 1:
                stage = LocalTraining(
                    federation.server, retained.select([slot]), RECIPE.optimizer, 0.0, RECIPE.seed, number - 1
                )
                stage.stack.broadcast(model)
                run_stage(stage, 2)  # 0.6 of 3 local epochs, rounded up
                new = {name: stage.stack.canonical()[name][0] - model[name] for name in model}
                if norm == "model":
                    lengths = [torch.cat([t.flatten() for t in each.values()]).norm() for each in (old, new)]
                    new = {name: tensor * lengths[0] / lengths[1] for name, tensor in new.items()}
                else:
                    new = {name: tensor * old[name].norm() / tensor.norm() for name, tensor in new.items()}
            total = {name: total[name] + weights[slot] * new[name] for name in model}
        model = {name: model[name] + total[name] for name in model}
    for name, tensor in found.server_state().items():
        torch.testing.assert_close(tensor, model[name], rtol=0, atol=1e-10)


def test_the_first_step_is_a_round_of_those_that_stay(trained):
    federation, graphs, retained, request = job(trained)
    method = FedEraser()
    method.prepare(federation, graphs, retained, request)
    method.run_round(Phase("replay", 3), 0)
    alone = federation.fresh()
    server = RECIPE.server_optimizer.build(alone.server.parameters())
    FederatedRounds(alone, RECIPE, Channel()).run(retained, 0, server)
    for name, tensor in method.federation.server_state().items():
        torch.testing.assert_close(tensor, alone.server_state()[name], rtol=0, atol=1e-10)


def test_a_leavers_data_and_stored_models_are_not_read(trained, tmp_path):
    federation, graphs, retained, request = job(trained)
    wanted = unlearn(FedEraser(), federation, graphs, retained, request)
    spoilt, history = federation.clone(), History(tmp_path)
    for number in federation.history.rounds():
        other = federation.clone()
        models = federation.history.load(number)
        models = {name: tensor.index_fill(0, torch.tensor([1]), torch.nan) for name, tensor in models.items()}
        other.put(range(4), models)
        history.save(number, other, federation.history.start(number))
    spoilt.history = history
    x = graphs.x.to_dense().clone()
    x[graphs.client == 1] = torch.nan
    without = ClientGraphs(x, graphs.edge_index, graphs.y, graphs.sizes, graphs.node_id, graphs.masks, 3)
    found = unlearn(FedEraser(), spoilt, without, retained, request)
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name]), name


def test_a_client_that_does_not_move_adds_nothing(trained):
    old, new = {"w": torch.ones(2, 3)}, {"w": torch.tensor([[0.0, 0, 0], [0, 0, 2]])}
    for norm in ("model", "tensor"):
        (ratio,) = FedEraser(norm=norm)._ratios(old, new)
        stretched = new["w"] * ratio
        assert not stretched[0].any()
        torch.testing.assert_close(stretched[1].norm(), old["w"][1].norm())


def test_the_released_variant_scales_the_mean_tensor_by_tensor(trained):
    federation, graphs, retained, request = job(trained)
    method = FedEraser("released", interval=4)
    method.prepare(federation, graphs, retained, request)
    method.run_round(Phase("replay", 2), 0)
    before = {name: tensor.clone() for name, tensor in method.federation.server_state().items()}
    method.run_round(Phase("replay", 2), 1)
    stored, start = federation.history.load(5), federation.history.start(5)
    for name, tensor in method.federation.server_state().items():
        length = (stored[name][[0, 2, 3]].mean(0) - start[name]).norm()
        torch.testing.assert_close((tensor - before[name]).norm(), length)


def test_what_it_costs(trained):
    method = FedEraser(interval=2)
    unlearn(method, *job(trained, (0, 2)))
    assert method.local_epochs == 2 * 2 * 2  # two calibrated rounds, two clients, half of three epochs rounded up
    assert len([entry for entry in method.channel.ledger if entry.direction == "up"]) == 2


def test_kept_too_little(trained, tmp_path):
    federation, graphs, retained, request = job(trained)
    other = federation.clone()
    other.history = History(tmp_path)
    other.history.save(1, federation, federation.server_state())
    with pytest.raises(ConfigurationError, match=r"--history\.every_n 2"):
        unlearn(FedEraser(), other, graphs, retained, request)
    other.history = None
    with pytest.raises(ConfigurationError, match=r"--history\.every_n 3"):
        unlearn(FedEraser(interval=3), other, graphs, retained, request)


def test_partial_participation(tmp_path):
    data = FederatedGraphDataModule(num_clients=4, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    start = Federation.create(GCN(8), 120, 3, 4, replace(RECIPE, participation=0.5), torch.float64)
    federation = train_ensemble(start, data.graphs, [0], ROUNDS)[0]
    federation.history = history_of(start, data.graphs, ROUNDS, tmp_path)
    found = replay(FedEraser("accumulated", interval=1), (federation, data.graphs))
    for name, tensor in found.server_state().items():
        torch.testing.assert_close(tensor, federation.server_state()[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{"interval": 0}, {"ratio": 0.0}])
def test_bad_options(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        FedEraser(**options)
