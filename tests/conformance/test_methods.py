"""What holds for every unlearning method: one that is added later is tested here without a change."""

import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from tiny import TINY, history_of

from page_lightning.audit.lineage import model_sha256
from page_lightning.backbones import GCN
from page_lightning.callbacks import RoundCheckpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestContext, RequestOptions, UnlearningRequest
from page_lightning.errors import CheckpointMismatchError, UnsupportedRequestError
from page_lightning.federation.federation import Federation
from page_lightning.federation.graphs import ClientGraphs
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import PAGE, GradientAscent, Need, list_methods, unlearn
from page_lightning.methods.base import ALL_KINDS
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.trainer import FederatedTrainer

METHODS = [method for method in list_methods() if method.__module__.startswith("page_lightning.")]
TINY_OPTIONS = {
    "FineTune": {"rounds": 3},
    "D2DGN": {"epochs": 3},
    "FUSED": {"rounds": 3},
    "GradientAscent": {"epochs": 2},
    "PAGE": {
        "preset": "fixed",
        "rounds": 2,
        "unlearn_epochs": 2,
        "distill_epochs": 2,
        "graph_nodes": 12,
        "graph_steps": 3,
    },
    "InfluencedUnlearning": {
        "method": GradientAscent(2),
        "page": PAGE("fixed", distill_epochs=2, graph_nodes=12, graph_steps=3),
    },
}
"""Options that make a method short, where its defaults are not."""

ROUNDS, LEAVER = 4, 1
KEPT = Recipe(optimizer=OptimizerOptions(lr=0.02))
RECIPES = {
    "keep": KEPT,
    "reset": replace(KEPT, optimizer_state="reset"),
    "participation": replace(KEPT, participation=0.5),
    "server momentum": replace(KEPT, server_optimizer=OptimizerOptions("SGD", 0.8, 0.0, {"momentum": 0.5})),
}
CASES = [
    *((kind, scene) for kind in ("node", "edge", "feature", "mixture") for scene in ("1 client", "3 clients")),
    *((kind, "nothing to forget") for kind in ("node", "edge", "feature", "mixture")),
    ("client", "3 clients"),
    ("node", "empty"),
]


def make(method):
    return method(**TINY_OPTIONS.get(method.__name__, {}))


@lru_cache
def graphs_of(num_clients):
    data = FederatedGraphDataModule(num_clients=num_clients, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    return data.graphs


@lru_cache
def trained(num_clients, recipe):
    start = Federation.create(GCN(8), 120, 3, num_clients, RECIPES[recipe])
    federation = train_ensemble(start, graphs_of(num_clients), [0], ROUNDS)[0]
    federation.history = history_of(start, graphs_of(num_clients), ROUNDS, Path(tempfile.mkdtemp()))
    return federation


@lru_cache
def asked(kind, scene):
    """A request: on all clients, or on the first alone, or for nothing."""
    graphs = graphs_of(1 if scene == "1 client" else 3)
    if scene == "empty":
        return RequestOptions(kind, ratio=0.0).build(graphs, "csbm")
    clients = [0] if scene == "nothing to forget" else "all"
    if kind == "client":
        return RequestOptions("client", clients=[LEAVER]).build(graphs, "csbm")
    if kind != "mixture":
        pool = "all" if kind == "edge" else "train"
        return RequestOptions(kind, count=3, clients=clients, pool=pool).build(graphs, "csbm")
    leavers = (LEAVER,) if scene == "3 clients" else ()
    clients = [k for k, size in enumerate(graphs.sizes) if k not in leavers] if clients == "all" else clients
    nodes, edges, features = (
        RequestOptions(part, count=2, clients=clients, pool="all").build(graphs, "csbm")
        for part in ("node", "edge", "feature")
    )
    return UnlearningRequest(leavers, nodes.nodes, edges.edges, features.features, nodes.context)


class Job:
    """A method about to run on a request; skipped where it does not carry such requests out."""

    def __init__(self, method, kind="mixture", scene="3 clients", recipe="keep"):
        self.request = asked(kind, scene)
        if self.request.kinds - method.supports:
            pytest.skip(f"{method.__name__} refuses {kind} requests")
        self.method, self.clients = make(method), graphs_of(1 if scene == "1 client" else 3)
        self.original = trained(self.clients.num_clients, recipe)
        self.retained = apply_request(self.clients, self.request)

    def plain(self):
        return unlearn(self.method, self.original, self.clients, self.retained, self.request)

    def prepare(self):
        self.method.prepare(self.original, self.clients, self.retained, self.request)
        return sum(phase.rounds for phase in self.method.phases(self.request))

    def trainer(self, folder, resume=None):
        rounds = self.prepare()
        if rounds:
            trainer = FederatedTrainer(
                max_epochs=rounds, accelerator="cpu", logger=False, enable_progress_bar=False,
                default_root_dir=folder, callbacks=[RoundCheckpoint(1, str(folder), keep=True)],
            )  # fmt: skip
            trainer.fit(self.method, train_dataloaders=[0], ckpt_path=resume)
        return self.method.result()


def assert_same(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)


@every_method
@pytest.mark.parametrize(("kind", "scene"), CASES)
def test_runs_alike_with_and_without_a_trainer(tmp_path, method, kind, scene):
    job = Job(method, kind, scene)
    before = model_sha256(job.original), RequestContext.of(job.clients, ""), RequestContext.of(job.retained, "")
    torch.manual_seed(1)
    result = job.plain()
    torch.manual_seed(2)
    assert_same(Job(method, kind, scene).plain(), result)  # global random state plays no part
    assert_same(job.plain(), result)  # nor what the object did before
    under_a_trainer = Job(method, kind, scene)
    assert_same(under_a_trainer.trainer(tmp_path), result)
    assert under_a_trainer.method.channel.ledger == job.method.channel.ledger
    assert under_a_trainer.method.local_epochs == job.method.local_epochs
    assert before == (
        model_sha256(job.original), RequestContext.of(job.clients, ""), RequestContext.of(job.retained, "")
    )  # fmt: skip
    assert result is not job.original
    theirs = job.original.state_dict()
    assert {n: (t.shape, t.dtype) for n, t in result.state_dict().items()} == {
        n: (t.shape, t.dtype) for n, t in theirs.items()
    }
    assert all(t.isfinite().all() for t in result.state_dict().values())
    assert result.recipe == job.original.recipe
    assert result.trained_rounds > 0
    for tensor in result.client_state(list(job.request.clients)).values():
        assert not tensor.count_nonzero(), "a departed client's model is erased"


@every_method
@pytest.mark.parametrize("kind", sorted(ALL_KINDS))
def test_an_unsupported_kind_is_refused(monkeypatch, method, kind):
    monkeypatch.setattr(method, "supports", method.supports - {kind})
    request = asked(kind, "3 clients")
    graphs = graphs_of(3)
    with pytest.raises(UnsupportedRequestError, match=f"{method.__name__} cannot carry out {kind} requests"):
        unlearn(make(method), trained(3, "keep"), graphs, apply_request(graphs, request), request)


@every_method
@pytest.mark.parametrize(
    ("kind", "recipe"), [("mixture", recipe) for recipe in RECIPES] + [("client", "keep"), ("node", "participation")]
)
def test_resumes_bit_identically_after_every_round(tmp_path, method, kind, recipe):
    whole = Job(method, kind, recipe=recipe)
    result = whole.trainer(tmp_path / "whole")
    rounds = sum(phase.rounds for phase in whole.method.phases(whole.request))
    for finished in range(1, rounds + 1):
        path = tmp_path / "whole" / f"unlearning-round={finished}.ckpt"
        resumed = Job(method, kind, recipe=recipe)
        assert_same(resumed.trainer(tmp_path / "resumed", resume=path), result)
        assert resumed.method.channel.ledger == whole.method.channel.ledger
        assert resumed.method.local_epochs == whole.method.local_epochs
        assert resumed.method.federation.trained_rounds == whole.method.federation.trained_rounds


@every_method
def test_a_checkpoint_of_other_work_is_refused(tmp_path, method):
    Job(method, "mixture").trainer(tmp_path)
    if not (tmp_path / "unlearning.ckpt").exists():
        pytest.skip("has no rounds")
    with pytest.raises(CheckpointMismatchError, match="another request"):
        Job(method, "node").trainer(tmp_path / "other", resume=tmp_path / "unlearning.ckpt")
    saved = torch.load(tmp_path / "unlearning.ckpt", weights_only=True)
    saved["unlearning"]["method"]["init_args"] = {"rounds": 1000}
    with pytest.raises(CheckpointMismatchError, match=f"not of {method.__name__}"):
        make(method).check_checkpoint(saved, asked("mixture", "3 clients"))


@every_method
@pytest.mark.parametrize("kind", ["client", "mixture"])
def test_nothing_of_a_leaver_is_left_behind(tmp_path, method, kind):
    job = Job(method, kind)
    job.trainer(tmp_path)
    own = {name: tensor[LEAVER] for name, tensor in job.original.client_state().items()}
    if (tmp_path / "unlearning.ckpt").exists():
        saved = torch.load(tmp_path / "unlearning.ckpt", weights_only=True)
        for name, tensor in named_tensors(saved):
            if tensor.shape[:1] == (3,) and "clients" in name:
                assert not tensor[LEAVER].count_nonzero(), f"{name} holds something of the leaver"
            for leaf, theirs in own.items():
                assert tensor.shape != theirs.shape or not torch.equal(tensor, theirs), f"{name} is its {leaf}"


@every_method
@pytest.mark.parametrize("kind", ["node", "client"])
def test_messages_are_counted(method, kind):
    job = Job(method, kind)
    heard = []
    rounds = job.prepare()
    job.method.channel.listeners.append(heard.append)
    for phase in job.method.phases(job.request):
        for step in range(phase.rounds):
            job.method.run_round(phase, step)
    assert len(heard) == len(job.method.channel.ledger)
    assert bool(heard) == bool(rounds), "what changes the server's model is a message"
    for message in heard:
        payload = message.payload()
        assert message.kind != "model" or payload.keys() >= {name for name, _, _ in message.shapes}
        for name, shape, size in (part for part in message.shapes if part[0] in payload):
            assert payload[name].shape[payload[name].dim() - len(shape) :] == shape
            assert payload[name].element_size() == size
    if kind == "client" and Need.LEAVER_ONLINE not in job.method.needs_for(job.request):
        assert not any(LEAVER in message.clients for message in heard)


SENTINEL = 12345.678


def with_sentinel(graphs, node_id):
    """One feature of one node is unlike any other."""
    x = graphs.x.to_dense().clone()
    x[graphs.node_id == node_id, 0] = SENTINEL
    return ClientGraphs(x, graphs.edge_index, graphs.y, graphs.sizes, graphs.node_id, graphs.masks, graphs.num_classes)


@every_method
@pytest.mark.parametrize("kind", ["node", "client", "mixture"])
def test_no_message_holds_a_clients_data(method, kind):
    job = Job(method, kind)
    node = int(job.clients.node_id[job.clients.client == LEAVER][0])
    clients, retained = (with_sentinel(graphs, node) for graphs in (job.clients, job.retained))
    heard = []
    job.method.prepare(job.original, clients, retained, job.request)
    job.method.channel.listeners.append(heard.append)
    for phase in job.method.phases(job.request):
        for step in range(phase.rounds):
            job.method.run_round(phase, step)
    edges = clients.edge_index[:, clients.client[clients.edge_index[0]] == LEAVER]
    secrets = [clients.y[clients.client == LEAVER], edges, edges.T, clients.node_id[clients.client == LEAVER]]
    for message in heard:
        for name, tensor in message.payload().items():
            assert not (tensor.double() - SENTINEL).abs().lt(1e-3).any(), f"{message.kind} {name} holds a feature"
            for secret in secrets:
                same = tensor.shape[-secret.dim() :] == secret.shape
                assert not same or not (tensor == secret).flatten(tensor.dim() - secret.dim()).all(-1).any()


@every_method
@pytest.mark.parametrize("kind", ["node", "client"])
def test_labels_of_test_nodes_are_never_read(method, kind):
    job = Job(method, kind)
    wanted = job.plain()

    def spoilt(graphs):
        y = torch.where(graphs.masks["test"], (graphs.y + 1) % graphs.num_classes, graphs.y)
        return ClientGraphs(graphs.x, graphs.edge_index, y, graphs.sizes, graphs.node_id, graphs.masks, 3)

    found = unlearn(make(method), job.original, spoilt(job.clients), spoilt(job.retained), job.request)
    assert_same(found, wanted)


def named_tensors(value, name=""):
    """Every tensor in nested containers, by path."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from named_tensors(part, f"{name}/{key}")
