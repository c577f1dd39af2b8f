"""Client models of early rounds: kept, read, resumed, erased."""

import warnings

import pytest
import torch

from page_lightning.backbones import GCN
from page_lightning.callbacks import HistoryKeeper, RoundCheckpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.history import History
from page_lightning.methods import PAGE
from page_lightning.modules import FederatedTraining
from page_lightning.trainer import FederatedTrainer
from page_lightning.unlearning import AuditOptions

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}


def trainer(folder, rounds, keeper):
    callbacks = [keeper, RoundCheckpoint(1, str(folder / "checkpoints"), keep=True)] if keeper else []
    return FederatedTrainer(
        max_epochs=rounds, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=folder,
        callbacks=callbacks, enable_checkpointing=bool(callbacks),
    )  # fmt: skip


def data():
    return FederatedGraphDataModule(num_clients=3, source_args=SMALL)


def keeper(folder, **options):
    return HistoryKeeper(dirpath=str(folder / "history"), **options)


def test_chosen_rounds_are_kept_and_a_resumed_run_goes_on(tmp_path):
    model = FederatedTraining(GCN(6))
    trainer(tmp_path, 4, keeper(tmp_path, first_n=2, every_n=3)).fit(model, datamodule=data())
    history = model.federation.history
    assert history.rounds() == [1, 2, 4]
    last = history.load(4)
    for name, tensor in model.federation.client_state().items():
        assert torch.equal(tensor, last[name])
    first = history.start(1)
    untrained = model.federation.fresh()
    for name, tensor in untrained.server_state().items():
        assert torch.equal(first[name], tensor)
    again = FederatedTraining(GCN(6))
    trainer(tmp_path, 9, keeper(tmp_path, first_n=2, every_n=3)).fit(
        again, datamodule=data(), ckpt_path=tmp_path / "checkpoints" / "round=4.ckpt"
    )
    assert again.federation.history.folder == history.folder
    assert history.rounds() == [1, 2, 4, 7]


def test_leavers_are_erased_for_good(tmp_path):
    model, module = FederatedTraining(GCN(6)), data()
    runner = trainer(tmp_path, 8, keeper(tmp_path, first_n=8))
    runner.unlearn(
        model, module, PAGE("plus"), RequestOptions("client", clients=[1]), output_dir=str(tmp_path / "out"),
        audit=AuditOptions(0),
    )  # fmt: skip
    assert model.federation.history is None, "nothing rewinds to rounds that saw the data"
    history = History(tmp_path / "history")
    assert history.rounds() == list(range(1, 9))
    for number in history.rounds():
        for name, tensor in history.load(number).items():
            assert tensor[1].eq(0).all(), (number, name)
        assert history.load(number)["layers.0.weight"][0].abs().sum() > 0
    for path in (tmp_path / "out" / "unlearned.ckpt",):
        state = torch.load(path, weights_only=True)["state_dict"]
        assert all(t[1].eq(0).all() for n, t in state.items() if n.startswith("federation.clients."))


def test_without_history_one_line_says_what_to_switch_on(tmp_path):
    with pytest.raises(ConfigurationError, match=r"--history\.first_n"):
        trainer(tmp_path, 3, None).unlearn(
            FederatedTraining(GCN(6)), data(), PAGE("plus", rewind=True), RequestOptions("client"),
            output_dir=str(tmp_path / "out"),
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_by_default_the_rewound_model_is_left_out_with_a_warning_only_where_leavers_are_memorised(tmp_path):
    for rounds, warned in ((1, False), (60, True)):
        model, module, folder = FederatedTraining(), data(), tmp_path / str(rounds)
        job = model, module, PAGE("plus"), RequestOptions("client", clients=[1])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            trainer(folder, rounds, None).unlearn(*job, output_dir=str(folder / "out"), audit=AuditOptions(0))
        assert any("--history.first_n 8" in str(each.message) for each in said) == warned


def test_page_plus_forgets_more_than_fixed_and_costs_a_tenth(tmp_path):
    module = FederatedGraphDataModule(num_clients=3)
    report = trainer(tmp_path, 40, keeper(tmp_path, first_n=8)).unlearn(
        FederatedTraining(), module, PAGE("plus"), RequestOptions("node", ratio=0.1), [PAGE("fixed")],
        output_dir=str(tmp_path / "out"), audit=AuditOptions(2),
    )  # fmt: skip
    kl = {row.name: row.figures.metrics["kl_forgotten"].value for row in report.rows}
    assert kl["page_plus"] < 0.5 * kl["no_op"]
    assert kl["page_plus"] < kl["page_fixed"] < kl["no_op"]
    cost = {row.name: row.cost.local_epochs for row in report.rows}
    assert cost["page_plus"] <= 0.13 * cost["retrain"]
    assert report.row("page_plus").influenced is not None
