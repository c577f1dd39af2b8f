"""What all baselines share: every backbone runs through them, and replaying without poisoned leavers heals."""

import pytest
import torch
from tiny import TINY, history_of

from page_lightning.backbones import GAT, GCN, GIN, MLP, SGC, GraphSAGE, PyGModule
from page_lightning.data import FederatedGraphDataModule
from page_lightning.data.apply_request import apply_request, forgotten_mask
from page_lightning.data.poison import LabelShift
from page_lightning.data.requests import RequestOptions
from page_lightning.federation.federation import Federation
from page_lightning.federation.optimizers import OptimizerOptions
from page_lightning.federation.recipe import Recipe
from page_lightning.methods import D2DGN, FUSED, GIF, FedEraser, Retrain, unlearn
from page_lightning.modules.ensemble import train_ensemble

BACKBONES = [
    *(GCN(8), GAT(8), GraphSAGE(8), SGC(), GIN(8), MLP(8)),
    PyGModule("GraphSAGE", {"norm": "batch_norm"}, hidden_channels=8),
]
METHODS = {
    "GIF": GIF(iterations=5),
    "GIF-server": GIF("server", iterations=5),
    "D2DGN": D2DGN(epochs=2),
    "D2DGN-random": D2DGN(epochs=2, student="random"),
    "FedEraser": FedEraser(),
    "FUSED": FUSED(rounds=1),
    "FUSED-low-rank": FUSED("low_rank", rounds=1),
}


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_backbone(tmp_path, backbone, method):
    data = FederatedGraphDataModule(num_clients=3, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    start = Federation.create(backbone, 120, 3, 3, Recipe())
    federation = train_ensemble(start, data.graphs, [0], 2)[0]
    federation.history = history_of(start, data.graphs, 2, tmp_path)
    kind = "client" if "client" in method.supports else "node"
    options = {"clients": [1]} if kind == "client" else {"ratio": 0.2}
    request = RequestOptions(kind, **options).build(data.graphs, "csbm")
    found = unlearn(method, federation, data.graphs, apply_request(data.graphs, request), request)
    before = federation.client_state([0])
    assert all(tensor.isfinite().all() for tensor in found.state_dict().values())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in found.client_state([0]).items())


def test_poisoned_leavers_are_forgotten(tmp_path):
    data = FederatedGraphDataModule(
        num_clients=4, ratios=(0.4, 0.3, 0.3), source_args=TINY, poison=LabelShift(clients=[1])
    )
    data.setup()
    graphs, request = data.graphs, data.poison_request
    recipe = Recipe(optimizer=OptimizerOptions("SGD", 0.3, 0.0), optimizer_state="reset")
    start = Federation.create(GCN(16), 120, 3, 4, recipe)
    federation = train_ensemble(start, graphs, [0], 25)[0]
    federation.history = history_of(start, graphs, 25, tmp_path)
    retained = apply_request(graphs, request)

    def accuracies(of):
        poisoned = graphs.flow_at(forgotten_mask(graphs, request), 2, torch.float32)
        kept = retained.flow(2, torch.float32, "test")
        pairs = (poisoned, graphs.y), (kept, retained.y)
        return [float((of.run_server(f)[1].argmax(1) == y[f.target_index]).float().mean()) for f, y in pairs]

    poisoned, kept = accuracies(federation)
    for method in (Retrain(), FedEraser(interval=1, ratio=1.0)):
        shifted, accuracy = accuracies(unlearn(method, federation, graphs, retained, request))
        assert shifted < poisoned - 0.3
        assert accuracy > kept - 0.05


def test_fused_costs_what_the_formula_says():
    data = FederatedGraphDataModule(num_clients=4, ratios=(0.4, 0.3, 0.3), source_args=TINY)
    data.setup()
    federation = train_ensemble(Federation.create(GCN(8), 120, 3, 4, Recipe()), data.graphs, [0], 2)[0]
    request = RequestOptions("client", clients=[1]).build(data.graphs, "csbm")
    for identify, finders in (("retained", 3), ("all", 4)):
        method = FUSED(rounds=5, identify=identify)
        unlearn(method, federation, data.graphs, apply_request(data.graphs, request), request)
        assert method.local_epochs == finders + 5 * 3 * 3
