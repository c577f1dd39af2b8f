"""The ablations under configs/ each change one thing about PAGE."""

import pytest
import torch
import yaml

from page_lightning.backbones import GCN
from page_lightning.cli import config_folder
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import PAGE, unlearn
from page_lightning.modules.ensemble import train_ensemble

SMALL = {"class_sizes": [60, 50, 40], "num_edges": 400, "num_words": 120, "words_per_node": 8}
ALL = ["prototypes", "local_unlearning", "adversarial_graphs", "distillation"]
FILES = {"target_zero": ALL, "without_graph": ALL[:2], "random_graph": ALL}


@pytest.fixture(scope="module")
def job():
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=SMALL)
    data.setup()
    federation = train_ensemble(Federation.create(GCN(8), 120, 3, 3, Recipe()), data.graphs, [0], 4)[0]
    request = RequestOptions("node", ratio=0.2).build(data.graphs, "csbm")
    return federation, data.graphs, apply_request(data.graphs, request), request


@pytest.mark.parametrize("name", FILES)
def test_ablation(job, name):
    options = yaml.safe_load((config_folder() / "method" / "page_ablation" / f"{name}.yaml").read_text())
    method, whole = PAGE(**options["method"]["init_args"], graph_nodes=12), PAGE("fixed", graph_nodes=12)
    found, reference = unlearn(method, *job).state_dict(), unlearn(whole, *job).state_dict()
    assert [phase.name for phase in method.phases(job[-1])] == FILES[name]
    assert [phase.name for phase in whole.phases(job[-1])] == ALL
    assert any(not torch.equal(tensor, reference[name]) for name, tensor in found.items())


def test_every_ablation_is_tested():
    assert {path.stem for path in (config_folder() / "method" / "page_ablation").glob("*.yaml")} == set(FILES)
