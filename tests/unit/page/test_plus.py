"""The preset plus: equal with and without a Trainer, resumed anywhere, and nobody reads what is not theirs."""

from dataclasses import replace

import pytest
import torch

from page_lightning.backbones import GCN
from page_lightning.callbacks import RoundCheckpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.history import History
from page_lightning.federation.messages import Channel
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import PAGE, unlearn
from page_lightning.methods.page_presets import CounterfactualSchedule
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.modules.local_training import LocalTraining
from page_lightning.modules.negative_distillation import NegativeDistillation
from page_lightning.modules.prototype_unlearning import PrototypeUnlearning
from page_lightning.modules.rounds import FederatedRounds
from page_lightning.modules.stage import run_stage
from page_lightning.modules.teacher_distillation import TeacherDistillation
from page_lightning.trainer import FederatedTrainer

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}
ROUNDS = 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=SMALL)
    data.setup()
    start = Federation.create(GCN(8), 120, 3, 3, Recipe())
    history = History(tmp_path_factory.mktemp("history"))
    history.save(3, train_ensemble(start, data.graphs, [0], 3)[0])
    federation = train_ensemble(start, data.graphs, [0], ROUNDS)[0]
    federation.history = history
    return federation, data.graphs


VARIANTS = {
    "node": {},
    "edge": {},
    "feature": {},
    "node unsettled": {"schedule": CounterfactualSchedule(2, 1, 1e6)},
    "client unsettled": {"schedule": CounterfactualSchedule(2, 1, 1e6)},
    "client": {"schedule": CounterfactualSchedule(3, 2, 2.0)},
    "client rewound": {"rewind": True, "schedule": CounterfactualSchedule(2, 1, 2.0), "rounds": 2},
    "client rewound, probes": {"rewind": True, "schedule": CounterfactualSchedule(1, 1, 2.0), "graph": "adversarial"},
    "mixed": {"rewind": True, "schedule": CounterfactualSchedule(1, 1, 2.0)},
}


def short(kind):
    return PAGE("plus", rewind_to=3, counterfactual_epochs=2, never_saw_epochs=2, distill_epochs=2, graph_steps=3,
                graph_nodes=12, **VARIANTS[kind])  # fmt: skip


def job(graphs, kind):
    kind = kind.partition(" ")[0]
    if kind == "mixed":
        node = RequestOptions("node", ratio=0.2).build(graphs, "csbm")
        request = replace(node, clients=(1,), nodes={0: node.nodes[0]}, selection=None)
    else:
        options = {"clients": [1]} if kind == "client" else {"ratio": 0.2}
        request = RequestOptions(kind, **options).build(graphs, "csbm")
    return apply_request(graphs, request), request


def with_trainer(method, federation, graphs, retained, request, folder, resume=None):
    method.prepare(federation, graphs, retained, request)
    trainer = FederatedTrainer(
        max_epochs=sum(phase.rounds for phase in method.phases(request)), accelerator="cpu", logger=False,
        enable_progress_bar=False, default_root_dir=folder, callbacks=[RoundCheckpoint(1, str(folder), keep=True)],
    )  # fmt: skip
    trainer.fit(method, train_dataloaders=[0], ckpt_path=resume)
    return method.result()


def assert_same(ours, theirs):
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name]), name


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_trainer_and_any_resumption_give_the_same_models(tmp_path, trained, kind):
    federation, graphs = trained
    retained, request = job(graphs, kind)
    method = short(kind)
    plain = unlearn(method, federation, graphs, retained, request)
    assert any(not t.equal(federation.state_dict()[n]) for n, t in plain.state_dict().items())
    assert_same(with_trainer(short(kind), federation, graphs, retained, request, tmp_path / "whole"), plain)
    rounds = sum(phase.rounds for phase in method.phases(request))
    for finished in range(1, rounds):
        path = tmp_path / "whole" / f"unlearning-round={finished}.ckpt"
        resumed = with_trainer(short(kind), federation, graphs, retained, request, tmp_path / "resumed", path)
        assert_same(resumed, plain)


@pytest.mark.parametrize("kind", ["node unsettled", "client unsettled"])
def test_where_no_step_is_harmless_it_trains_on_without_the_data(trained, kind):
    federation, graphs = trained
    retained, request = job(graphs, kind)
    method = short(kind)
    found = unlearn(method, federation, graphs, retained, request)
    assert method.unsettled
    tuned = federation.clone()
    rounds = FederatedRounds(tuned, tuned.recipe, Channel())
    server = tuned.recipe.server_optimizer.build(tuned.server.parameters())
    for number in range(3):
        rounds.run(retained, ROUNDS + 1 + number, server)
    for name, tensor in tuned.server_state().items():
        assert torch.equal(tensor, found.server_state()[name]), name


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind != "mixed"])
def test_labels_of_test_nodes_are_never_read(trained, kind):
    federation, graphs = trained
    retained, request = job(graphs, kind)

    def spoilt(part):
        y = torch.where(part.masks["test"], (part.y + 1) % 3, part.y)
        return ClientGraphs(part.x, part.edge_index, y, part.sizes, part.node_id, part.masks, 3)

    found = unlearn(short(kind), federation, spoilt(graphs), spoilt(retained), request)
    assert_same(found, unlearn(short(kind), federation, graphs, retained, request))


def stages(federation, graphs, probe):
    """Every stage of PAGE on all three clients, by name."""
    models, server = federation.client_state(), federation.server
    nodes = graphs.masks["train"]
    answers = torch.full((int(nodes.sum()), 3), 1 / 3)
    basis = [torch.eye(8)[:, :2]] * 3
    yield PrototypeUnlearning(server, models, graphs, nodes, basis, "private", retain="ce", retained=graphs)
    yield TeacherDistillation(server, models, graphs, nodes, answers, graphs)
    yield NegativeDistillation(server, models, graphs, *probe)
    yield LocalTraining(server, graphs, dropout=False)


@pytest.mark.parametrize("place", range(4))
def test_no_step_of_a_client_reads_another_clients_data(trained, place):
    federation, graphs = trained
    draws = torch.Generator().manual_seed(0)
    probe = torch.rand(2, 10, 120, generator=draws), torch.zeros(2, 10, 10), torch.rand(2, 10, 3, generator=draws)
    own = graphs.client != 2
    x = torch.where(own[:, None], graphs.x.to_dense(), torch.nan)
    y = torch.where(own, graphs.y, (graphs.y + 1) % 3)
    sound = ClientGraphs(
        graphs.x.to_dense(), graphs.edge_index, graphs.y, graphs.sizes, graphs.node_id, graphs.masks, 3
    )
    spoilt = ClientGraphs(x, graphs.edge_index, y, graphs.sizes, graphs.node_id, graphs.masks, 3)
    ends = []
    for part in (sound, spoilt):
        stage = list(stages(federation, part, probe))[place]
        run_stage(stage, 2)
        ends.append(stage.stack.canonical())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name][:2], tensor[:2], rtol=0, atol=0, msg=name)
        assert ends[1][name][2].isnan().any() or name.endswith("bias")
