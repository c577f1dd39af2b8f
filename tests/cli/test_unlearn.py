"""``unlearn`` and ``verify``: files, requests in sequence, resume, exit statuses, bad input, help."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from tiny import TINY, TINY_JOB

from page_lightning.cli import config_folder, main

CONFIGS = [
    path.relative_to(config_folder())
    for name in ("request", "method")
    for path in sorted((config_folder() / name).glob("*.yaml"))
]
QUIET = ("--progress_bar.enabled", "false")
UNLEARN = (*TINY_JOB, *QUIET, "--audit.retrains", "2")
FILES = {"report.json", "table.md", "unlearned.ckpt", "request.json", "accuracy.png", "roc.png", "clients.png"}
MEMORISING = (
    *("--data.source", "csbm", "--data.source_args", json.dumps(TINY), "--data.num_clients", "3", *QUIET),
    *("--data.ratios", "[.5,.1,.4]", "--trainer.max_epochs", "15", "--trainer.accelerator", "cpu"),
    *("--trainer.limit_val_batches", "0", "--model.local_epochs", "4", "--model.optimizer.lr", "0.03"),
    *("--model.backbone", "GCN", "--model.backbone.hidden_channels", "16", "--model.backbone.dropout", "0"),
)
"""A job that overfits, so that an audit can see what was forgotten."""


def report(folder):
    return json.loads((Path(folder) / "report.json").read_text())


def models(path):
    return torch.load(path, weights_only=True)["state_dict"]


def assert_same(ours, theirs):
    ours, theirs = models(ours), models(theirs)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with ``fitted/last.ckpt`` of the tiny job."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["fit", *TINY_JOB, "--trainer.enable_progress_bar", "false", "--checkpoint.dirpath", "fitted"])
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PAGE_LIGHTNING_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def trained(home):
    return ("--trained_ckpt_path", str(home / "fitted" / "last.ckpt"))


@pytest.mark.parametrize("config", ["configs/experiment/cora_k5.yaml", "configs/demo.yaml"])
def test_the_whole_job_in_one_command(page_lightning, tmp_path, config):
    said = page_lightning(
        "unlearn", "--config", config, "--method", "NoOp", "--compare", "[Retrain, FineTune]",
        "--request.kind", "node", "--request.ratio", "0.1", "--output_dir", "forgot", *TINY_JOB,
        "--audit.retrains", "2",
    )  # fmt: skip
    assert not said.err
    assert max(map(len, said.out.splitlines())) <= 80
    assert "round 2/2" in said.out, "it fits first"
    assert {path.name for path in (tmp_path / "forgot").rglob("*") if path.is_file()} == FILES
    found = report("forgot")
    assert [row["name"] for row in found["rows"]] == ["original", "no_op", "retrain", "fine_tune"]
    tested = page_lightning("test", "--config", config, *TINY_JOB, "--ckpt_path", "forgot/unlearned.ckpt")
    assert "test: local on local" in tested.out


def test_compared_methods_with_options(page_lightning, trained):
    compare = "[{class_path: Retrain, init_args: {rounds: 1}}, {class_path: FineTune, init_args: {rounds: 2}}]"
    page_lightning("unlearn", *UNLEARN, *trained, "--method", "Retrain", "--compare", compare)
    rows = {row["name"]: row for row in report("unlearned")["rows"]}
    assert list(rows) == ["original", "no_op", "retrain", "retrain@1", "fine_tune"]
    assert rows["retrain@1"]["init_args"] == {"rounds": 1}
    assert rows["fine_tune"]["cost"]["rounds"] == 2


def test_the_recipe_is_the_checkpoints(page_lightning):
    other = ("--model.backbone", "GraphSAGE", "--model.local_epochs", "1")
    page_lightning("fit", *TINY_JOB, *QUIET, *other, "--checkpoint.dirpath", "sage")
    page_lightning("unlearn", *UNLEARN, "--audit.retrains", "0", "--trained_ckpt_path", "sage/last.ckpt")
    saved = torch.load("unlearned/unlearned.ckpt", weights_only=True)["hyper_parameters"]
    assert saved["local_epochs"] == 1
    assert saved["backbone"]["class_path"].endswith("GraphSAGE")


def test_a_second_run_gives_the_same_report(page_lightning, trained):
    for folder in ("first", "second"):
        page_lightning("unlearn", *UNLEARN, *trained, "--compare", "[FineTune]", "--output_dir", folder)
    assert report("first")["report_id"] == report("second")["report_id"]
    assert_same("first/unlearned.ckpt", "second/unlearned.ckpt")
    page_lightning("unlearn", *UNLEARN, *trained, "--compare", "[FineTune]", "--request.seed", "1")
    assert report("unlearned")["report_id"] != report("first")["report_id"]


def test_a_method_takes_no_options_over_from_the_default(page_lightning):
    for name, options in (("Retrain", "rounds: null"), ("FineTune", "rounds: 5")):
        said = page_lightning("unlearn", "--method", name, "--print_config")
        assert f"{name}\n  init_args:\n    {options}\n" in said.out


def test_requests_in_sequence(page_lightning, trained, tmp_path):
    page_lightning("unlearn", *UNLEARN, *trained, "--request.kind", "client", "--request.clients", "[1]",
                   "--output_dir", "one")  # fmt: skip
    again = ("unlearn", *UNLEARN, "--trained_ckpt_path", "one/unlearned.ckpt", "--output_dir", "two")
    said = page_lightning(*again, "--request.kind", "client", "--request.clients", "[1]", expect=2)
    assert "client 1 has already left" in said.err
    assert not (tmp_path / "two").exists()
    page_lightning(*again, "--request.kind", "node", "--method", "FineTune")
    assert {path.name for path in Path("two").glob("*.json")} == {"report.json", "request.json", "request-1.json"}
    found = report("two")
    assert found["data"]["client_sizes"][1] == 0
    assert found["rows"][0]["sha256"] == next(r for r in report("one")["rows"] if r["name"] == "page_plus")["sha256"]
    tested = page_lightning("test", *TINY_JOB, "--ckpt_path", "two/unlearned.ckpt")
    assert "test: local on local" in tested.out
    for name, tensor in models("two/unlearned.ckpt").items():
        if ".clients." in name:
            assert not tensor[1].count_nonzero(), f"{name} holds something of the client that left"
            assert tensor[0].count_nonzero()
    saved = torch.load("two/unlearned.ckpt", weights_only=True)["federation"]
    assert not saved["client_optimizer"], "no moments of the training that saw the data"
    assert saved["requests"] == ["request-1.json", "request.json"]


def test_resumes_in_the_middle_of_a_phase(page_lightning, trained):
    job = (*UNLEARN, *trained, "--audit.retrains", "0", "--checkpoint.every_n_rounds", "1", "--checkpoint.keep", "true",
           "--method", "FineTune")  # fmt: skip
    page_lightning("unlearn", *job, "--checkpoint.dirpath", "kept", "--output_dir", "whole")
    page_lightning("unlearn", *job, "--resume_ckpt_path", "kept/unlearning-round=2.ckpt", "--output_dir", "resumed")
    assert_same("whole/unlearned.ckpt", "resumed/unlearned.ckpt")
    assert report("whole")["report_id"] == report("resumed")["report_id"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mine.csv", "node_id\n{node}\n"),
        ("mine.json", '{{"targets": {{"nodes": [{node}]}}}}'),
        ("client.csv", "client_id\n2\n"),
    ],
)
def test_requests_from_files(page_lightning, trained, tmp_path, name, content):
    page_lightning("unlearn", *UNLEARN, *trained, "--audit.retrains", "0", "--method", "NoOp")
    node = json.loads(Path("unlearned/request.json").read_text())["targets"]["nodes"]["0"][0]
    (tmp_path / name).write_text(content.format(node=node))
    page_lightning("unlearn", *UNLEARN, *trained, "--audit.retrains", "0", "--request.path", name, "--output_dir", "a")
    page_lightning(
        "unlearn", *UNLEARN, *trained, "--audit.retrains", "0", "--request.path", "a/request.json", "--output_dir", "b"
    )
    assert Path("a/request.json").read_text() == Path("b/request.json").read_text()
    assert report("a")["report_id"] == report("b")["report_id"]
    assert report("a")["request"]["num_nodes"] == (0 if name == "client.csv" else 1)


BAD = {
    "all clients": ("all clients would leave", ["--request.kind", "client", "--request.ratio", "1"]),
    "unknown client": ("client 7 does not exist", ["--request.kind", "client", "--request.clients", "[7]"]),
    "too many": ("request.count 900", ["--request.count", "900"]),
    "a client drained": ("would keep none of its", ["--request.ratio", "1"]),
    "contradiction": ("request.ratio 0.1 and request.count 3", ["--request.ratio", "0.1", "--request.count", "3"]),
    "ratio": ("request.ratio 2.0", ["--request.ratio", "2"]),
    "no such file": ("request.path nowhere.json", ["--request.path", "nowhere.json"]),
    "unknown node": ("node 999 is not in the federation", ["--request.path", "{files}/unknown.csv"]),
    "no edge": ("there is no edge between", ["--request.path", "{files}/edge.csv"]),
    "broken JSON": ("no valid JSON", ["--request.path", "{files}/broken.json"]),
    "one retrain": ("audit.retrains is 1", ["--audit.retrains", "1"]),
    "unknown method": ("method: there is no class 'Nope'", ["--method", "Nope"]),
    "rounds": ("rounds of FineTune is 0", ["--method", "FineTune", "--method.rounds", "0"]),
    "damping": ("damping of GIF is -1.0; it must be at least 0", ["--method", "GIF", "--method.damping", "-1"]),
    "alpha": (
        "alpha of D2DGN is 2.0; it must be at least 0 and at most 1",
        ["--method", "D2DGN", "--method.alpha", "2"],
    ),
    "an option alone": ("method: name its class before its options", ["--method.preset", "fixed"]),
    "one layer": (
        "raise model.backbone.num_layers",
        ["--method", "PAGE", "--method.preset", "fixed", "--model.backbone.num_layers", "1"],
    ),
    "edge lists": (
        "probes need a stacked model.backbone",
        ["--config", "configs/backbone/gatv2.yaml", "--method", "PAGE", "--method.preset", "fixed"],
    ),
    "history": ("switch on --history.every_n 2", ["--method", "FedEraser", "--request.kind", "client"]),
    "checkpoint": ("trained_ckpt_path nowhere.ckpt: no such file", ["--trained_ckpt_path", "nowhere.ckpt"]),
    "resume": ("resume_ckpt_path nowhere.ckpt: no such file", ["--resume_ckpt_path", "nowhere.ckpt"]),
    "resume from fit": ("holds no unlearning", ["--resume_ckpt_path", "{home}/fitted/last.ckpt"]),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "unknown.csv").write_text("node_id\n999\n")
    (folder / "edge.csv").write_text("src,dst\n0,0\n")
    (folder / "broken.json").write_text('{"targets": ')
    return folder


@pytest.mark.parametrize("case", BAD)
def test_the_impossible_is_one_line_before_any_training(page_lightning, tmp_path, home, files, case):
    named, options = BAD[case]
    filled = [option.format(files=files, home=home) for option in options]
    said = page_lightning("unlearn", *TINY_JOB, *filled, expect=2)
    (line,) = said.err.splitlines()
    assert line.startswith("page-lightning: error: ")
    assert named in line
    assert "round" not in said.out
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A folder with an overfitted federation and two answers to the same request."""
    folder = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PAGE_LIGHTNING_CACHE", str(folder / "cache"))
        main(["fit", *MEMORISING, "--checkpoint.dirpath", "fitted"])
        trained = ("--trained_ckpt_path", "fitted/last.ckpt", "--audit.retrains", "0", "--request.ratio", "0.4")
        for method in ("Retrain", "NoOp"):
            main(["unlearn", *MEMORISING, *trained, "--method", method, "--output_dir", method])
    return folder


@pytest.mark.parametrize(
    ("after", "retrains", "status"), [("Retrain", 8, 0), ("NoOp", 8, 3), ("Retrain", 2, 4), ("NoOp", 2, 4)]
)
def test_the_exit_status_tells_the_verdict(page_lightning, judged, monkeypatch, after, retrains, status):
    monkeypatch.setenv("PAGE_LIGHTNING_CACHE", str(judged / "cache"))
    page_lightning(
        "verify", "--before", judged / "fitted" / "last.ckpt", "--after", judged / after / "unlearned.ckpt",
        "--request.path", judged / after / "request.json", "--audit.retrains", retrains, "--output_dir", "verified",
        "--trainer.accelerator", "cpu", expect=status,
    )  # fmt: skip
    found = report("verified")
    assert [row["name"] for row in found["rows"]] == ["original", "no_op", "retrain", "unlearned"]
    verdict = {0: "INDISTINGUISHABLE", 3: "RESIDUAL", 4: "INCONCLUSIVE"}[status]
    assert {entry["verdict"] for entry in found["audit"] if entry["row"] == "unlearned"} >= {verdict}
    if retrains == 8:
        assert all(entry["power"] >= 0.8 for entry in found["audit"][:1])


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("before nowhere.ckpt: no such file", ["--before", "nowhere.ckpt"]),
        ("after nowhere.ckpt: no such file", ["--after", "nowhere.ckpt"]),
        ("request.path nowhere.json", ["--request.path", "nowhere.json"]),
        ("audit.retrains is 1", ["--audit.retrains", "1"]),
    ],
)
def test_verify_with_bad_input(page_lightning, judged, tmp_path, named, options):
    job = ["--before", judged / "fitted" / "last.ckpt", "--after", judged / "NoOp" / "unlearned.ckpt",
           "--request.path", judged / "NoOp" / "request.json", "--trainer.accelerator", "cpu"]  # fmt: skip
    said = page_lightning("verify", *job, *options, expect=2)
    (line,) = said.err.splitlines()
    assert named in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", CONFIGS, ids=str)
def test_requests_and_methods_parse(page_lightning, path):
    merged = yaml.safe_load(page_lightning("unlearn", "--config", Path("configs", path), "--print_config").out)
    given = yaml.safe_load((config_folder() / path).read_text())
    if path.parts[0] == "request":
        assert merged["request"].items() >= given["request"].items()
    else:
        name = given["method"] if isinstance(given["method"], str) else given["method"]["class_path"]
        assert merged["method"]["class_path"].endswith(f".{name}")


HELP = {
    "unlearn": {
        "--trained_ckpt_path": "checkpoint of ``fit``",
        "--resume_ckpt_path": "checkpoint of an interrupted run",
        "--method": "how to unlearn",
        "--compare": "other methods to judge beside it",
        "--output_dir": "folder for the results",
        "--request.kind": "nodes, edges, the whole feature rows of nodes, or clients",
        "--request.ratio": "Share of each client's pool",
        "--request.count": "Instead of ratio",
        "--request.clients": "Clients to draw from",
        "--request.pool": "Draw among training nodes",
        "--request.seed": "Seed of the draw",
        "--request.path": "A JSON or CSV file",
        "--audit.retrains": "federations that are retrained",
    },
    "verify": {
        "--before": "checkpoint of the trained federation",
        "--after": "checkpoint of the unlearned federation",
        "--request.path": "A JSON or CSV file",
        "--output_dir": "folder for the report",
        "--audit.retrains": "federations that are retrained",
    },
}


@pytest.mark.parametrize("verb", HELP)
def test_help(page_lightning, verb):
    said = " ".join(page_lightning(verb, "--help").out.split())
    for option, meaning in HELP[verb].items():
        assert option in said
        assert meaning in said, option
