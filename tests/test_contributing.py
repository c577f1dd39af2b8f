"""The method that CONTRIBUTING.md shows is complete, short, and does what the product's own does."""

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
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.errors import ConfigurationError
from page_lightning.federation.federation import Federation
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import D2DGN, unlearn
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


@pytest.mark.parametrize("kind", ["node", "feature"])
def test_is_the_method_itself(shown, tmp_path, kind):
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    graphs = data.graphs
    federation = train_ensemble(Federation.create(GCN(8), 120, 3, 3, Recipe()), graphs, [0], 6)[0]
    request = RequestOptions(kind, ratio=0.2).build(graphs, "csbm")
    retained = apply_request(graphs, request)
    wanted = unlearn(D2DGN(0.3, 5, 1e-2), federation, graphs, retained, request).state_dict()
    assert any(not torch.equal(tensor, wanted[name]) for name, tensor in federation.state_dict().items())
    method = shown.D2DGN(0.3, 5, 1e-2)
    method.prepare(federation, graphs, retained, request)
    trainer = FederatedTrainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path,
        callbacks=[RoundCheckpoint(1, str(tmp_path))],
    )  # fmt: skip
    trainer.fit(method, train_dataloaders=[0])
    plain = unlearn(shown.D2DGN(0.3, 5, 1e-2), federation, graphs, retained, request)
    for found in (method.result(), plain):
        for name, tensor in found.state_dict().items():
            assert torch.equal(tensor, wanted[name]), name


def test_refuses_bad_options(shown):
    with pytest.raises(ConfigurationError, match="alpha of D2DGN is 2"):
        shown.D2DGN(alpha=2)
