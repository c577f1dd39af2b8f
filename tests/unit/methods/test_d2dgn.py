"""D2DGN against a plain loop over clients, and what must hold of any preserver and destroyer."""

import pytest
import torch
from tiny import TINY
from torch.func import functional_call

from page_lightning.backbones import GCN
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request, forgotten_mask
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.federation import Federation
from page_lightning.federation.recipe import Recipe
from page_lightning.influence import InfluenceRule
from page_lightning.methods import D2DGN, GradientAscent, InfluencedUnlearning, unlearn
from page_lightning.methods.page import PAGE
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.modules.teacher_distillation import TeacherDistillation


@pytest.fixture(scope="module")
def trained():
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    start = Federation.create(GCN(8), 120, 3, 3, Recipe(), torch.float64)
    return train_ensemble(start, data.graphs, [0], 8)[0], data.graphs


def job(trained, kind="node", ratio=0.3):
    federation, graphs = trained
    request = RequestOptions(kind, ratio=ratio).build(graphs, "csbm")
    return federation, graphs, apply_request(graphs, request), request


def answers(federation, models, graphs, mask):
    flow = graphs.flow_at(mask, 2, torch.float64)
    return functional_call(federation.server, models, (flow,))[1].log_softmax(1)


def kl(teacher, student):
    return (teacher.exp() * (teacher - student)).sum(1).mean()


@pytest.mark.parametrize("student", ["original", "random"])
@pytest.mark.parametrize("kind", ["node", "edge", "feature"])
def test_equals_a_plain_loop(trained, kind, student):
    federation, graphs, retained, request = job(trained, kind)
    method = D2DGN(alpha=0.3, epochs=4, student=student)
    found = unlearn(method, *job(trained, kind))
    destroyer, fresh = federation.random(0).server_state(), federation.random(1).server_state()
    for slot in request.touched:
        here, rest = graphs.select([slot]), retained.select([slot])
        mask, kept = forgotten_mask(here, request), rest.masks["train"]
        if kind == "edge":
            kept = kept & ~forgotten_mask(rest, request)
        own = {name: tensor[slot] for name, tensor in federation.client_state().items()}
        model = {n: t.clone().requires_grad_() for n, t in (own if student == "original" else fresh).items()}
        optimizer = torch.optim.Adam(model.values(), lr=1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            loss = 0.3 * kl(answers(federation, own, rest, kept), answers(federation, model, rest, kept))
            loss = loss + 0.7 * kl(answers(federation, destroyer, here, mask), answers(federation, model, here, mask))
            loss.backward()
            optimizer.step()
        for name, tensor in found.client_state([slot]).items():
            torch.testing.assert_close(tensor[0], model[name].detach(), rtol=0, atol=1e-10)


def test_with_all_weight_on_what_is_kept_the_start_is_stationary(trained):
    federation, graphs, retained, request = job(trained)
    mask = forgotten_mask(graphs, request)
    stage = TeacherDistillation(
        federation.server, federation.client_state(), graphs, mask, torch.full((int(mask.sum()), 3), 1 / 3), retained,
        keep=1.0, forget=0.0,
    )  # fmt: skip
    loss = stage.training_step()
    loss.backward()
    assert abs(float(loss)) < 1e-12
    assert all(tensor.grad.abs().max() < 1e-12 for tensor in stage.stack.tensors)


def test_with_all_weight_on_what_is_forgotten_it_becomes_the_destroyer_there(trained):
    federation, graphs, _, request = job(trained)
    mask = forgotten_mask(graphs, request)
    destroyer = answers(federation, federation.random(0).server_state(), graphs, mask)
    distances = []
    for epochs in (1, 20, 100, 300):
        found = unlearn(D2DGN(alpha=0.0, epochs=epochs, lr=1e-2), *job(trained))
        flow = graphs.flow_at(mask, 2, torch.float64)
        distances.append(float(kl(destroyer, found.run_clients(flow)[1].log_softmax(1))))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.05


def test_forgotten_nodes_grow_uncertain_and_the_rest_stays(trained):
    federation, graphs, retained, request = job(trained)
    found = unlearn(D2DGN(epochs=100), federation, graphs, retained, request)

    def entropy(of):
        p = of.run_clients(graphs.flow_at(forgotten_mask(graphs, request), 2, torch.float64))[1].softmax(1)
        return float(-(p * p.log()).sum(1).mean())

    flow = retained.flow(2, torch.float64, "train")
    kept = kl(federation.run_clients(flow)[1].log_softmax(1), found.run_clients(flow)[1].log_softmax(1))
    assert entropy(found) > entropy(federation) + 0.1
    assert float(kept) < 0.1


def test_the_server_averages_the_clients(trained):
    found = unlearn(D2DGN(epochs=2), *job(trained))
    weights = torch.tensor(job(trained)[2].sizes, dtype=torch.float64)
    for name, tensor in found.server_state().items():
        mean = torch.tensordot(weights / weights.sum(), found.client_state()[name], 1)
        torch.testing.assert_close(tensor, mean, rtol=0, atol=1e-12)


def test_influenced_clients_may_follow(trained):
    page = PAGE("fixed", influence=InfluenceRule("all"), graph_nodes=12, graph_steps=3, distill_epochs=1)
    federation, graphs = trained
    request = RequestOptions("node", count=3, clients=[0]).build(graphs, "csbm")
    method = InfluencedUnlearning(D2DGN(epochs=2), page)
    found = unlearn(method, federation, graphs, apply_request(graphs, request), request)
    assert method.row_name == "d2dgn+influenced"
    assert InfluencedUnlearning(GradientAscent(1), page).row_name == "gradient_ascent+influenced"
    before, after = federation.client_state(), found.client_state()
    moved = sum((after[name] - before[name]).abs().flatten(1).sum(1) for name in before)
    assert moved[0] > 0
    assert moved[1:].sum() > 0


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"epochs": 0}, {"lr": -1.0}, {"lr": float("nan")}])
def test_bad_options(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        D2DGN(**options)
