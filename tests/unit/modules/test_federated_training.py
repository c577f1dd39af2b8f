"""FedAvg through a Trainer: rounds, resume, participation, checkpoints, profile."""

import math
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from tiny import TINY
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from page_lightning.backbones import GAT, GCN, GIN, SGC, GraphSAGE, PyGModule
from page_lightning.callbacks import RoundCheckpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.partitioners import Random
from page_lightning.errors import CheckpointMismatchError, ConfigurationError
from page_lightning.modules import FederatedTraining, OptimizerOptions
from page_lightning.trainer import FederatedTrainer


def data(num_clients=3, **options):
    return FederatedGraphDataModule(num_clients=num_clients, source_args=TINY, **options)


def train(model, rounds, folder, data_module=None, **options):
    options.setdefault("callbacks", [RoundCheckpoint(every_n_rounds=1, dirpath=str(folder), keep=True)])
    trainer = FederatedTrainer(
        max_epochs=rounds, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=folder,
        **{key: value for key, value in options.items() if key != "ckpt_path"},
    )  # fmt: skip
    trainer.fit(model, datamodule=data_module or data(), ckpt_path=options.get("ckpt_path"))
    return trainer


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=0, msg=name)


BACKBONES = {
    "gcn": lambda: GCN(8),
    "gatv2": lambda: PyGModule("torch_geometric.nn.GATv2Conv", hidden_channels=8),
    "batch_norm": lambda: PyGModule("GraphSAGE", {"norm": "batch_norm"}, hidden_channels=8),
}


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer_state": "reset"},
        {"participation": 0.5},
        {"participation": 0.5, "optimizer_state": "reset"},
        {"optimizer": OptimizerOptions("SGD", 0.1, 0.0, {"momentum": 0.9})},
    ],
    ids=["keep", "reset", "part-keep", "part-reset", "momentum"],
)
def test_resume_is_bit_identical(tmp_path, backbone, options):
    whole = FederatedTraining(BACKBONES[backbone](), **options)
    train(whole, 5, tmp_path / "whole")
    resumed = FederatedTraining(BACKBONES[backbone](), **options)
    train(resumed, 5, tmp_path / "resumed", ckpt_path=tmp_path / "whole" / "round=3.ckpt")
    assert_same(state(resumed), state(whole))
    assert resumed.channel.ledger == whole.channel.ledger
    assert resumed.best == whole.best


def test_resumed_training_differs_without_the_checkpoint(tmp_path):
    first, second = FederatedTraining(GCN(8)), FederatedTraining(GCN(8), seed=1)
    train(first, 2, tmp_path / "a")
    train(second, 2, tmp_path / "b")
    name = "federation.server.layers.0.weight"
    assert not torch.equal(first.state_dict()[name], second.state_dict()[name])


def test_checkpoint_loads_weights_only_and_from_the_python_api(tmp_path):
    model = FederatedTraining(GCN(8), optimizer=OptimizerOptions(lr=0.02))
    train(model, 2, tmp_path)
    raw = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert raw["hyper_parameters"]["optimizer"]["lr"] == 0.02
    loaded = FederatedTraining.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert_same(state(loaded), state(model))
    assert loaded.hparams == model.hparams


def test_stock_model_checkpoint_works(tmp_path):
    stock = ModelCheckpoint(tmp_path, monitor="val/local_on_local/accuracy", mode="max", filename="best")
    trainer = train(FederatedTraining(GCN(8)), 3, tmp_path, callbacks=[stock])
    assert trainer.global_step == 3  # rounds
    assert Path(stock.best_model_path).is_file()


def test_every_stage_counts_a_round_once(tmp_path):
    model = FederatedTraining(GCN(8), participation=0.5)
    train(model, 4, tmp_path)
    up = [entry for entry in model.channel.ledger if entry.direction == "up"]
    assert [entry.round for entry in up] == [0, 1, 2, 3]
    size = (120 * 8 + 8 + 8 * 3 + 3) * 4
    assert all(entry.clients == 2 and entry.bytes == 2 * size for entry in up)


def test_clients_outside_a_round_keep_their_models(tmp_path):
    seen = []

    class Watch(Callback):
        def on_train_epoch_end(self, trainer, module):
            slots, _ = module.rounds._sampler.draw(trainer.current_epoch)
            seen.append((slots, module.federation.client_state()["layers.0.weight"].clone()))

    train(FederatedTraining(GCN(8), participation=0.4), 6, tmp_path, callbacks=[Watch()])
    assert len({slots for slots, _ in seen}) > 1
    for (_, before), (slots, after) in pairwise(seen):
        changed = {k for k in range(3) if not torch.equal(before[k], after[k])}
        assert changed == set(slots)


def test_weighted_mean_is_the_server(tmp_path):
    model, module = FederatedTraining(GCN(8)), data()
    train(model, 2, tmp_path, module)
    sizes = torch.tensor(module.graphs.sizes, dtype=torch.float64)
    clients = model.federation.client_state()
    for name, server in model.federation.server_state().items():
        mean = torch.tensordot(sizes / sizes.sum(), clients[name].double(), 1)
        torch.testing.assert_close(server.double(), mean, rtol=0, atol=1e-6)


def test_server_optimizer_scales_the_step(tmp_path):
    plain = FederatedTraining(GCN(8, dropout=0.0))
    half = FederatedTraining(GCN(8, dropout=0.0), server_optimizer=OptimizerOptions("SGD", 0.5, 0.0))
    train(plain, 1, tmp_path / "a")
    train(half, 1, tmp_path / "b")
    start = FederatedTraining(GCN(8, dropout=0.0))
    start.build(120, 3, 3)
    for name, initial in start.federation.server_state().items():
        expected = initial + 0.5 * (plain.federation.server_state()[name] - initial)
        torch.testing.assert_close(half.federation.server_state()[name], expected)


def test_four_evaluation_modes(tmp_path):
    modes = [f"{model}_on_{where}" for model, where in product(("local", "global"), ("local", "global"))]
    model, module = FederatedTraining(GCN(8), evaluation=modes), data()
    trainer = train(model, 3, tmp_path, module)
    (result,) = trainer.test(model, datamodule=module, verbose=False)
    assert {f"test/{mode}/{name}" for mode in modes for name in ("accuracy", "macro_f1", "auroc")} <= result.keys()
    graphs, federation = module.graphs, model.federation
    flow = module.whole_graph().flow(2, torch.float32)
    test, weights = graphs.masks["test"], torch.tensor(graphs.sizes, dtype=torch.float64)
    weights = weights / weights.sum()
    on_whole = [federation.run_client(k, flow)[1].argmax(1)[graphs.node_id] == graphs.y for k in range(3)]
    expected = sum(w * hits[test].double().mean() for w, hits in zip(weights, on_whole, strict=True))
    assert result["test/local_on_global/accuracy"] == pytest.approx(float(expected))
    hits = federation.run_server(flow)[1].argmax(1)[graphs.node_id] == graphs.y
    per_client = torch.stack([hits[test & (graphs.client == k)].double().mean() for k in range(3)])
    assert result["test/global_on_global/accuracy"] == pytest.approx(float(weights @ per_client))
    scores = model.client_scores()["global_on_global"]["accuracy"]
    assert scores == pytest.approx(per_client.tolist())


def test_best_by_validation_is_the_test_score_of_that_round(tmp_path):
    scores = []

    class Watch(Callback):
        def on_validation_epoch_end(self, trainer, module):
            figures = {split: module._metrics[split, "local_on_local"].compute() for split in ("val", "test")}
            scores.append(tuple(float(figures[split]["accuracy"]) for split in ("val", "test")))

    model = FederatedTraining(GCN(8))
    train(model, 6, tmp_path, callbacks=[Watch()])
    best = max(range(6), key=lambda r: (scores[r][0], -r))
    assert model.best == {"round": best, "val_accuracy": scores[best][0], "test_accuracy": scores[best][1]}


def test_a_client_without_training_nodes_receives_and_never_sends(tmp_path):
    module = data(num_clients=40, partitioner=Random(), ratios=(0.4, 0.3, 0.3))
    model = FederatedTraining(GCN(8))
    train(model, 2, tmp_path, module)
    idle = [k for k, count in enumerate(module.graphs.count("train").tolist()) if count == 0]
    assert idle, "the partition should leave someone without training nodes"
    assert model.channel.ledger[0].clients == 40 - len(idle)
    clients = model.federation.client_state()
    assert all(torch.equal(clients[name][idle[0]], clients[name][idle[-1]]) for name in clients)
    assert not any(tensor.isnan().any() for tensor in model.state_dict().values())


def test_no_training_node_at_all(tmp_path):
    with pytest.raises(ConfigurationError, match=r"data\.ratios"):
        train(FederatedTraining(GCN(8)), 1, tmp_path, data(ratios=(0.0, 0.5, 0.5)))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"local_epochs": 0}, "model.local_epochs"),
        ({"participation": 0.0}, "model.participation"),
        ({"optimizer": OptimizerOptions("Nothing")}, "model.optimizer"),
        ({"optimizer": OptimizerOptions("SGD", args={"unknown": 1})}, "model.optimizer"),
    ],
)
def test_bad_options_are_named(tmp_path, options, name):
    with pytest.raises(ConfigurationError, match=name):
        train(FederatedTraining(GCN(8), **options), 1, tmp_path)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    train(FederatedTraining(GCN(8)), 1, tmp_path)
    with pytest.raises(CheckpointMismatchError, match=r"model\.backbone"):
        train(FederatedTraining(GCN(16)), 2, tmp_path, ckpt_path=tmp_path / "last.ckpt")
    with pytest.raises(CheckpointMismatchError, match="4 clients"):
        train(FederatedTraining(GCN(8)), 2, tmp_path, data(4), ckpt_path=tmp_path / "last.ckpt")


def test_one_client_is_central_training(tmp_path):
    model = FederatedTraining(GraphSAGE(8, dropout=0.0))
    train(model, 3, tmp_path, data(1))
    for name, server in model.federation.server_state().items():
        torch.testing.assert_close(server, model.federation.client_state()[name][0], rtol=0, atol=1e-7)


SYNCHRONISING = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero", "aten::equal"}


class Watched(Callback):
    """Holds a context open over the client and server computation of round 2."""

    def __init__(self, context):
        self.context = context

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.current_epoch == 2:
            self.context.__enter__()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.current_epoch == 2:
            self.context.__exit__(None, None, None)


@pytest.mark.parametrize("backbone", [GCN(8), GAT(8), GraphSAGE(8), SGC(), GIN(8)], ids=lambda b: type(b).__name__)
def test_a_round_never_waits_for_the_device(tmp_path, backbone):
    # SGD: the CPU kernel of fused Adam reads its own step counter, which the CUDA kernel does not
    context = profile(activities=[ProfilerActivity.CPU])
    model = FederatedTraining(backbone, optimizer=OptimizerOptions("SGD", 0.1))
    train(model, 4, tmp_path, callbacks=[Watched(context)], limit_val_batches=0)
    seen = {event.key for event in context.key_averages()}
    assert {"aten::embedding_bag", "aten::_embedding_bag"} & seen, "the profile covers the round"
    assert not seen & SYNCHRONISING


def test_a_round_with_adamw_asks_for_no_host_value(tmp_path):
    asked = []

    class Ask(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            asked.append(str(func.overloadpacket).replace(".", "::"))
            return func(*args, **(kwargs or {}))

    train(FederatedTraining(GCN(8)), 4, tmp_path, callbacks=[Watched(Ask())], limit_val_batches=0)
    assert "aten::_fused_adamw_" in asked
    assert not set(asked) & SYNCHRONISING


def test_memory_is_flat_over_rounds(tmp_path):
    import tracemalloc

    sizes = []

    class Watch(Callback):
        def on_train_epoch_end(self, trainer, module):
            if trainer.current_epoch in (20, 199):
                sizes.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        train(FederatedTraining(GCN(8)), 200, tmp_path, callbacks=[Watch()], limit_val_batches=0)
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 2**20  # the ledger's few hundred lines


def test_loss_is_the_mean_over_clients(tmp_path):
    model, module = FederatedTraining(SGC(), local_epochs=1), data()
    trainer = train(model, 1, tmp_path, module)
    fresh = FederatedTraining(SGC())
    federation = fresh.build(120, 3, 3)
    graphs = module.graphs
    logits = federation.run_server(graphs.flow(2, torch.float32))[1]
    losses = [
        torch.nn.functional.cross_entropy(logits[mask], graphs.y[mask])
        for mask in (graphs.masks["train"] & (graphs.client == k) for k in range(3))
    ]
    assert math.isclose(float(trainer.callback_metrics["train/loss"]), float(sum(losses).detach() / 3), rel_tol=1e-5)
