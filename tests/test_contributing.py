"""The method that CONTRIBUTING.md shows is complete, short, and does what it says."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from tiny import TINY

from page_lightning.backbones import GCN
from page_lightning.callbacks import RoundCheckpoint
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request, forgotten_mask
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import unlearn
from page_lightning.modules.ensemble import train_ensemble
from page_lightning.trainer import FederatedTrainer

CODE = re.search(r"```python\n(.*?)```", (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(), re.DOTALL).group(
    1
)


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """The code as a module that can be imported."""
    (tmp_path / "shown_method.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("shown_method", tmp_path / "shown_method.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shown_method", module)
    spec.loader.exec_module(module)
    return module


def test_is_short():
    assert len([line for line in CODE.splitlines() if line.strip()]) < 40


def test_does_what_it_says(shown, tmp_path):
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    graphs = data.graphs
    federation = train_ensemble(Federation.create(GCN(8), 120, 3, 3, Recipe()), graphs, [0], 6)[0]
    request = RequestOptions("node", ratio=0.2).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    plain = unlearn(shown.Uniform(50, 1e-2), federation, graphs, retained, request)

    def farthest(of):
        flow = graphs.flow_at(forgotten_mask(graphs, request), 2, torch.float32)
        return float((of.run_clients(flow)[1].softmax(1) - 1 / 3).abs().mean())

    assert farthest(plain) < farthest(federation) / 2
    method = shown.Uniform(50, 1e-2)
    method.prepare(federation, graphs, retained, request)
    trainer = FederatedTrainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path,
        callbacks=[RoundCheckpoint(1, str(tmp_path))],
    )  # fmt: skip
    trainer.fit(method, train_dataloaders=[0])
    for name, tensor in method.result().state_dict().items():
        assert torch.equal(tensor, plain.state_dict()[name]), name
