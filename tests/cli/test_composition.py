"""Configurations merge, are printed, saved and run again; help tells what options mean."""

import re

import yaml
from tiny import TINY_JOB, rows


def test_later_configs_win(page_lightning, tmp_path):
    (tmp_path / "mine.yaml").write_text("model:\n  local_epochs: 7\n")
    files = ("configs/experiment/cora_k5.yaml", "configs/schedule/openfgl.yaml", "mine.yaml")
    said = page_lightning("fit", *(part for file in files for part in ("--config", file)), "--print_config")
    merged = yaml.safe_load(said.out)
    assert merged["trainer"]["max_epochs"] == 100
    assert merged["model"]["local_epochs"] == 7
    assert merged["model"]["optimizer"]["lr"] == 0.01
    assert merged["data"]["source"] == "Cora"


def test_saved_and_printed_configs_rerun_to_the_same_numbers(page_lightning, tmp_path):
    job = ("--config", "configs/demo.yaml", *TINY_JOB, "--model.backbone", "GAT", "--data.partitioner", "Metis")
    page_lightning("fit", *job)
    page_lightning("fit", "--config", "runs/version_0/config.yaml")
    (tmp_path / "printed.yaml").write_text(page_lightning("fit", *job, "--print_config").out)
    page_lightning("fit", "--config=printed.yaml")
    first, *others = ((tmp_path / "runs" / f"version_{n}" / "metrics.csv").read_bytes() for n in range(3))
    assert others == [first, first]
    page_lightning("fit", *job, "--model.seed", "1")
    assert (tmp_path / "runs" / "version_3" / "metrics.csv").read_bytes() != first


def test_a_run_leaves_its_files(page_lightning, tmp_path):
    said = page_lightning("fit", *TINY_JOB)
    assert not said.err
    assert "csbm: partition" in said.out
    assert re.search(r"round 2/2  loss \d\.\d{4}  accuracy \d\.\d{4}", said.out)
    assert max(map(len, said.out.splitlines())) <= 80
    run = tmp_path / "runs" / "version_0"
    names = {path.name for path in run.rglob("*") if path.is_file()}
    assert names == {"config.yaml", "hparams.yaml", "metrics.csv", "partition.json", "ledger.csv", "last.ckpt"}
    assert [row["round"] for row in rows(run / "ledger.csv")] == ["0", "0", "1", "1"]


def test_many_clients_are_summarised(page_lightning, tmp_path):
    said = page_lightning("fit", *TINY_JOB, "--data.num_clients", "30", "--data.ratios", "[0.6,0.2,0.2]")
    assert re.search(r"median .*\n.*most ", said.out)
    assert "all 30" in said.out
    partition = yaml.safe_load((tmp_path / "runs" / "version_0" / "partition.json").read_text())
    assert len(partition["client_sizes"]) == 30


def test_evaluation_is_the_commands_not_the_checkpoints(page_lightning):
    page_lightning("fit", *TINY_JOB)
    checkpoint = ("--ckpt_path", "runs/version_0/checkpoints/last.ckpt")
    said = page_lightning("test", *TINY_JOB, *checkpoint, "--model.evaluation", "[global_on_global]")
    assert "test: global on global" in said.out
    assert "on local" not in said.out


def test_scoring_untrained_models_is_said(page_lightning):
    assert "without --ckpt_path" in page_lightning("test", *TINY_JOB).err


def test_help_is_the_docstrings(page_lightning):
    said = " ".join(page_lightning("fit", "--help").out.split())
    for option, meaning in {
        "--config": "configuration file",
        "--model.backbone": "architecture of every model",
        "--model.local_epochs": "full-batch steps of each client in a round",
        "--model.optimizer.weight_decay": "as the optimizer understands it",
        "--model.evaluation": "models and data to score",
        "--data.root": "folder that holds the data sets' files",
        "--data.partitioner": "how nodes are assigned to clients",
        "--data.min_train_per_class": "training nodes that every class of a client gets at least",
        "--checkpoint.every_n_rounds": "rounds between two savings",
        "--progress_bar.enabled": "show it",
        "--ckpt_path": "",
    }.items():
        assert option in said
        assert meaning in said, option
    nested = " ".join(page_lightning("fit", "--data.partitioner.help", "Louvain").out.split())
    assert "Resolution of the modularity" in nested
