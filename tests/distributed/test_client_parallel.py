"""Two gloo processes with unequal shares equal one process."""

import os
import subprocess
import sys

import pytest
import torch
from tiny import rows

pytestmark = pytest.mark.distributed

JOB = [
    "--data.num_clients", "5", "--data.partitioner", "MetisPlus",
    "--data.source_args", '{"class_sizes": [160, 150, 140], "num_edges": 1200, "num_words": 200, "words_per_node": 9}',
    "--model.backbone.hidden_channels", "16", "--trainer.accelerator", "cpu", "--trainer.precision", "64-true",
    "--progress_bar.enabled", "false",
]  # fmt: skip

METHODS = ("FineTune", "Retrain")


def page_lightning(folder, *args, check=True):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "page_lightning", *args]
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    assert not check or run.returncode == 0, run.stderr
    return run


def fit(folder, processes, *args):
    folder.mkdir()
    parallel = ["--trainer.strategy", "client_parallel"] if processes > 1 else []
    page_lightning(folder, "fit", *JOB, *parallel, "--trainer.devices", str(processes), *args)
    run = folder / "runs" / "version_0"
    checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return checkpoint, rows(run / "metrics.csv"), run


@pytest.mark.parametrize(
    "options",
    [
        ["--trainer.max_epochs", "4", "--model.backbone", "GCN", "--model.auroc", "true"],
        ["--trainer.max_epochs", "3", "--model.backbone", "GAT", "--model.participation", "0.3"],
    ],
    ids=["gcn", "gat-one-idle-process"],
)
def test_two_processes_equal_one(tmp_path, options):
    one, one_metrics, _ = fit(tmp_path / "one", 1, *options)
    two, two_metrics, run = fit(tmp_path / "two", 2, *options)
    for name, tensor in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], tensor, rtol=0, atol=1e-10, msg=name)
    for name, state in one["federation"]["client_optimizer"].items():
        for key, tensor in state.items():
            theirs = two["federation"]["client_optimizer"][name][key]
            torch.testing.assert_close(theirs, tensor, rtol=0, atol=1e-10, msg=f"{name} {key}")
    rounded = [
        [{name: f"{float(value):.4f}" for name, value in row.items() if value} for row in metrics]
        for metrics in (one_metrics, two_metrics)
    ]
    assert rounded[0] == rounded[1]
    assert two["federation"]["ledger"] == one["federation"]["ledger"]

    checkpoint = str(run / "checkpoints" / "last.ckpt")
    tested = page_lightning(tmp_path / "one", "test", *JOB, *options[2:], "--ckpt_path", checkpoint)
    assert "test: local on local" in tested.stdout


def test_more_processes_than_clients(tmp_path):
    arguments = [*JOB, "--data.num_clients", "1", "--trainer.strategy", "client_parallel", "--trainer.devices", "2"]
    run = page_lightning(tmp_path, "fit", *arguments, check=False)
    assert run.returncode == 2
    lines = [line for line in run.stderr.splitlines() if line.startswith("page-lightning: error:")]
    assert lines, run.stderr
    assert "trainer.devices" in lines[0]
    assert "Traceback" not in run.stderr


def test_forgetting_on_two_processes_equals_one(tmp_path):
    """Unequal shares, dropout on; FineTune runs under the Trainer, Retrain beside it."""
    tables, checkpoints = [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        parallel = ["--trainer.strategy", "client_parallel"] if processes > 1 else []
        for method, other in (("FineTune", "Retrain"), ("Retrain", "FineTune")):
            page_lightning(
                folder, "unlearn", *JOB, *parallel, "--trainer.devices", str(processes), "--trainer.max_epochs", "3",
                "--model.backbone", "GCN", "--model.backbone.dropout", "0.5", "--method", method,
                "--compare", f"[{other}]", "--request.clients", "[0, 2]", "--audit.retrains", "0",
                "--output_dir", method,
            )  # fmt: skip
        checkpoints.append({m: torch.load(folder / m / "unlearned.ckpt", weights_only=True) for m in METHODS})
        tables.append([(folder / m / "table.md").read_text() for m in METHODS])
    one, two = checkpoints
    for method in METHODS:
        for name, tensor in one[method]["state_dict"].items():
            torch.testing.assert_close(two[method]["state_dict"][name], tensor, rtol=0, atol=1e-10, msg=name)
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    "request_args",
    [["--request.kind", "client", "--request.clients", "[0, 2]"], ["--request.kind", "node", "--request.ratio", "0.2"]],
)
def test_page_on_two_processes_equals_one(tmp_path, request_args):
    """Plus under the Trainer, fixed beside it; clients that leave, and clients that forget a part."""
    found = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        parallel = ["--trainer.strategy", "client_parallel"] if processes > 1 else []
        page_lightning(
            folder, "unlearn", *JOB, *parallel, "--trainer.devices", str(processes), "--trainer.max_epochs", "4",
            "--history.first_n", "2", "--model.backbone", "GCN", "--method", "PAGE", "--method.rewind", "true",
            "--compare", '[{"class_path": "PAGE", "init_args": {"preset": "fixed", "graph_nodes": 12}}, Retrain]',
            *request_args, "--audit.retrains", "0", "--output_dir", "out",
        )  # fmt: skip
        found.append((torch.load(folder / "out" / "unlearned.ckpt", weights_only=True), (folder / "out" / "table.md")))
    (one, table), (two, other) = found
    for name, tensor in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], tensor, rtol=0, atol=1e-10, msg=name)
    assert table.read_text() == other.read_text()


@pytest.mark.parametrize(
    ("method", "other", "request_args"),
    [
        ("FedEraser", "FUSED", ["--request.kind", "client", "--request.clients", "[0, 2]"]),
        ("GIF", "D2DGN", ["--request.kind", "node", "--request.ratio", "0.2"]),
    ],
)
def test_baselines_on_two_processes_equal_one(tmp_path, method, other, request_args):
    found = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        parallel = ["--trainer.strategy", "client_parallel"] if processes > 1 else []
        page_lightning(
            folder, "unlearn", *JOB, *parallel, "--trainer.devices", str(processes), "--trainer.max_epochs", "3",
            "--history.every_n", "2", "--model.backbone", "GCN", "--method", method, "--compare", f"[{other}]",
            *request_args, "--audit.retrains", "0", "--output_dir", "out",
        )  # fmt: skip
        found.append((torch.load(folder / "out" / "unlearned.ckpt", weights_only=True), (folder / "out" / "table.md")))
    (one, table), (two, theirs) = found
    for name, tensor in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], tensor, rtol=0, atol=1e-9, msg=name)
    assert table.read_text() == theirs.read_text()
