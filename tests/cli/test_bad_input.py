"""Every mistake is one line that names the option or the file, status 2, and leaves nothing behind."""

import shutil

import numpy as np
import pytest
import torch
from tiny import TINY_JOB

from page_lightning.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Sound and damaged input files."""
    folder = tmp_path_factory.mktemp("files")
    nodes, edges = 30, np.array([[0, 1, 2], [1, 2, 3]])
    x, y = np.ones((nodes, 4), np.float32), np.arange(nodes) % 3
    broken_x, broken_y = x.copy(), y.copy()
    broken_x[7, 2], broken_y[3] = np.nan, -1
    np.savez(folder / "sound.npz", x=x, edge_index=edges, y=y)
    np.savez(folder / "nan.npz", x=broken_x, edge_index=edges, y=y)
    np.savez(folder / "label.npz", x=x, edge_index=edges, y=broken_y)
    (folder / "short.npz").write_bytes((folder / "sound.npz").read_bytes()[:200])
    minesweeper = folder / "root" / "minesweeper" / "raw"
    minesweeper.mkdir(parents=True)
    shutil.copy(folder / "sound.npz", minesweeper / "minesweeper.npz")

    main(["fit", *TINY_JOB, "--checkpoint.dirpath", str(folder), "--trainer.logger.save_dir", str(folder)])
    (folder / "short.ckpt").write_bytes((folder / "last.ckpt").read_bytes()[:3000])
    (folder / "text.ckpt").write_text("hello\n")
    torch.save({"state_dict": {}}, folder / "foreign.ckpt")
    (folder / "broken.yaml").write_text("data: [1,\n  source: Cora\n")
    (folder / "text.yaml").write_text("hello\n")
    (folder / "unknown.yaml").write_text("modell:\n  seed: 3\n")
    return folder


CASES = {
    "unknown data set": ("data.source 'Nope' is unknown", ["--data.source", "Nope"]),
    "unknown data class": ("data.source no.such.Class", ["--data.source", "no.such.Class"]),
    "missing file": ("nowhere.npz: no such file", ["--data.source", "nowhere.npz"]),
    "truncated file": ("short.npz: truncated", ["--data.source", "{files}/short.npz"]),
    "wrong statistics": ("data.source Minesweeper", ["--data.source", "Minesweeper", "--data.root", "{files}/root"]),
    "NaN": ("data.source nan: 1 feature", ["--data.source", "{files}/nan.npz"]),
    "label": ("data.source label: label -1 of node 3", ["--data.source", "{files}/label.npz"]),
    "no root": ("data.root /no/where", ["--data.source", "Cora", "--data.root", "/no/where"]),
    "source args": ("data.source csbm: ", ["--data.source_args", "{{nope: 1}}"]),
    "too many clients": ("data.num_clients 500", ["--data.num_clients", "500"]),
    "no client": ("data.num_clients 0", ["--data.num_clients", "0"]),
    "ratios above 1": ("data.ratios [0.5, 0.5, 0.5] sum to 1.5", ["--data.ratios", "[.5,.5,.5]"]),
    "two ratios": ("data.ratios: ", ["--data.ratios", "[.5,.5]"]),
    "no training node": ("data.ratios", ["--data.ratios", "[0,.5,.5]"]),
    "no official split": ("data.split", ["--data.split", "official"]),
    "seed": ("data.seed -1", ["--data.seed", "-1"]),
    "unknown option": ("--data.nope", ["--data.nope", "1"]),
    "option without value": ("--model.seed", ["--model.seed"]),
    "unknown class": ("model.backbone: there is no class 'Nope'", ["--model.backbone", "Nope"]),
    "unknown class path": ("data.partitioner: ", ["--data.partitioner", "no.such.Class"]),
    "unknown class option": ("model.backbone: ", ["--model.backbone", "GCN", "--model.backbone.nope", "1"]),
    "bad class option": ("model.backbone", ["--model.backbone", "GCN", "--model.backbone.hidden_channels", "wide"]),
    "layers": ("model.backbone.num_layers", ["--model.backbone", "GCN", "--model.backbone.num_layers", "0"]),
    "dropout": ("model.backbone.dropout", ["--model.backbone", "GCN", "--model.backbone.dropout", "1.5"]),
    "module args": (
        "model.backbone.module_args",
        ["--model.backbone", "PyGModule", "--model.backbone.module_args", "{{nope: 1}}"],
    ),
    "literal": ("model.weighting: expected one of", ["--model.weighting", "some"]),
    "literal in list": ("model.evaluation: expected one of", ["--model.evaluation", "[some]"]),
    "not a number": ("data.num_clients: expected int; got ten", ["--data.num_clients", "ten"]),
    "optimizer": ("model.optimizer.name", ["--model.optimizer.name", "Nope"]),
    "optimizer args": ("model.optimizer", ["--model.optimizer.args", "{{nope: 1}}"]),
    "participation": ("model.participation", ["--model.participation", "2"]),
    "config missing": ("--config nowhere.yaml: no such file", ["--config", "nowhere.yaml"]),
    "config not YAML": ("broken.yaml: not YAML", ["--config", "{files}/broken.yaml"]),
    "config is text": ("text.yaml: holds no options", ["--config={files}/text.yaml"]),
    "config with an unknown key": ("modell.seed", ["--config", "{files}/unknown.yaml"]),
    "rounds below 0": ("trainer.max_epochs is -5", ["--trainer.max_epochs", "-5"]),
    "rounds without end": ("trainer.max_epochs is -1", ["--trainer.max_epochs", "-1"]),
    "rounds in words": ("trainer.max_epochs: expected int; got many", ["--trainer.max_epochs", "many"]),
    "accelerator": ("accelerator='abacus'", ["--trainer.accelerator", "abacus"]),
    "cadence": ("checkpoint.every_n_rounds", ["--checkpoint.every_n_rounds", "0"]),
    "checkpoint missing": ("ckpt_path nowhere.ckpt: no such file", ["--ckpt_path", "nowhere.ckpt"]),
    "checkpoint truncated": ("short.ckpt: not a checkpoint", ["--ckpt_path", "{files}/short.ckpt"]),
    "checkpoint is text": ("text.ckpt: not a checkpoint", ["--ckpt_path", "{files}/text.ckpt"]),
    "checkpoint of others": ("foreign.ckpt: holds no federation", ["--ckpt_path", "{files}/foreign.ckpt"]),
    "checkpoint of another shape": ("4 clients", ["--ckpt_path", "{files}/last.ckpt", "--data.num_clients", "4"]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_nothing_written(page_lightning, tmp_path, files, case):
    named, options = CASES[case]
    job = [] if "--data.root" in options else TINY_JOB
    if "--data.source" in options or "--data.source_args" in options:
        job = ["--trainer.accelerator", "cpu"]
    said = page_lightning("fit", *job, *(option.format(files=files) for option in options), expect=2)
    (line,) = said.err.splitlines()
    assert line.startswith("page-lightning: error: ")
    assert named in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("args", [[], ["train"]])
def test_subcommand(page_lightning, args):
    said = page_lightning(*args, expect=2)
    assert "fit" in said.err.splitlines()[0]
