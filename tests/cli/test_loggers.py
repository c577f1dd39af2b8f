"""What CSV, TensorBoard and W&B (offline) hold after a run."""

import json
import struct
import time

import pytest
from tiny import TINY_JOB, rows

METRICS = {"train/loss", "val/local_on_local/accuracy", "val/global_on_local/macro_f1", "best/test_accuracy"}


def test_csv(page_lightning, tmp_path):
    page_lightning("fit", "--config", "configs/logger/csv.yaml", *TINY_JOB)
    lines = rows(tmp_path / "runs" / "version_0" / "metrics.csv")
    assert lines[0].keys() >= METRICS
    assert {line["step"] for line in lines} == {"0", "1"}
    assert sum(bool(line["val/local_on_local/accuracy"]) for line in lines) == 2


def test_tensorboard(page_lightning, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    page_lightning("fit", "--config", "configs/logger/tensorboard.yaml", *TINY_JOB)
    events = accumulator.EventAccumulator(str(tmp_path / "runs" / "tensorboard" / "version_0"))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= METRICS
    assert [event.step for event in events.Scalars("train/loss")] == [0, 1]


def test_wandb_offline(page_lightning, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    page_lightning("fit", "--config", "configs/logger/wandb_offline.yaml", *TINY_JOB, "--model.local_epochs", "4")
    import wandb

    wandb.finish()
    (path,) = (tmp_path / "runs" / "wandb").glob("offline-run-*/*.wandb")
    config, history = read_wandb(path)
    patience = time.monotonic() + 30
    while len(history) < 4 or "local_epochs" not in config:  # W&B's own process writes the file
        assert time.monotonic() < patience, (config, history)
        time.sleep(0.1)
        config, history = read_wandb(path)
    assert config["local_epochs"] == 4
    assert config["config"]["data"]["source"] == "csbm"
    assert config["config"]["trainer"]["max_epochs"] == 2
    by_metric = {name: [line["trainer/global_step"] for line in history if name in line] for name in METRICS}
    assert by_metric == {name: [0, 1] for name in METRICS}


def test_wandb_holds_what_unlearn_found(page_lightning, tmp_path, monkeypatch):
    import wandb

    wandb.teardown()  # it remembers the working folder of an earlier run
    monkeypatch.setenv("WANDB_SILENT", "true")
    page_lightning(
        "unlearn", "--config", "configs/logger/wandb_offline.yaml", *TINY_JOB, "--audit.retrains", "2",
        "--method", "FineTune", "--method.rounds", "3", "--data.cache", "cache",
    )  # fmt: skip
    wandb.finish()
    (path,) = (tmp_path / "runs" / "wandb").glob("offline-run-*/*.wandb")
    patience = time.monotonic() + 30
    while not any("figures/clients.filenames" in line for line in read_wandb(path)[1]):
        assert time.monotonic() < patience
        time.sleep(0.1)
    _, history = read_wandb(path)
    (run,) = {(r.run.run_group, r.run.job_type, tuple(r.run.tags)) for r in wandb_records(path) if r.HasField("run")}
    assert run == ("csbm-3", "unlearn", ("csbm", "Louvain", "FineTune"))
    curve = [line["trainer/global_step"] for line in history if "unlearn/fine_tune/loss" in line]
    assert curve == [2, 3, 4]  # after the two rounds of training
    (table,) = (line["report.path"] for line in history if "report.path" in line)
    content = json.loads((path.parent / "files" / table).read_text())
    assert [row[0].split(" ")[0] for row in content["data"]] == ["original", "no_op", "retrain", "fine_tune"]
    assert content["columns"][0] == "model"
    for name in ("accuracy", "roc", "clients"):
        key = f"figures/{name}.filenames"
        ((file,),) = (line[key] for line in history if key in line)
        assert (path.parent / "files" / file).read_bytes() == (tmp_path / f"unlearned/figures/{name}.png").read_bytes()


def wandb_records(path):
    """The records of a ``.wandb`` file: protobuf in a log of 32-KiB blocks."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, block, place, part = path.read_bytes(), 2**15, 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # no header fits
            place += block - place % block
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)
        if place + 7 + size > len(content):  # still being written
            break
        part += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in {2, 3}:  # continued in the next block
            continue
        yield Record.FromString(part)
        part = b""


def read_wandb(path):
    """Configuration and history of a ``.wandb`` file."""
    config, history = {}, []
    for record in wandb_records(path):
        updates = (*record.run.config.update, *record.config.update)
        config |= {update.key or update.nested_key[0]: json.loads(update.value_json) for update in updates}
        if record.HasField("history"):
            line = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history.append(line)
    return config, history
