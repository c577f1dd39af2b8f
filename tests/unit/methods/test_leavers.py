"""After a client request nothing of the leaver is left: in memory, in caches, in files."""

import gc

import pytest
import torch
from tiny import TINY

from page_lightning import (
    AuditOptions,
    FederatedGraphDataModule,
    FederatedTrainer,
    FederatedTraining,
    FineTune,
    NoOp,
    RequestOptions,
    Retrain,
)
from page_lightning.federation.graphs import ClientGraphs

LEAVER = 1


@pytest.mark.parametrize("method", [None, NoOp(), FineTune(2)], ids=["default", "NoOp", "FineTune"])
def test_nothing_of_a_leaver_is_left(tmp_path, method):
    data = FederatedGraphDataModule(num_clients=3, source_args=TINY, cache=str(tmp_path / "cache"))
    data.setup()
    here = data.graphs
    others = [t for t in gc.get_objects() if isinstance(t, ClientGraphs) and t is not here]  # of other tests
    del here
    theirs = set(data.graphs.node_id[data.graphs.client == LEAVER].tolist())
    model = FederatedTraining()
    trainer = FederatedTrainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        default_root_dir=tmp_path,
    )  # fmt: skip
    options = {} if method is None else {"method": method}
    trainer.unlearn(
        model, data, request=RequestOptions("client", clients=[LEAVER]), compare=[Retrain()], audit=AuditOptions(2),
        output_dir=str(tmp_path / "out"), **options,
    )  # fmt: skip
    gc.collect()
    held = [t for t in gc.get_objects() if isinstance(t, ClientGraphs) and not any(t is own for own in others)]
    assert data.graphs in held
    assert not [graphs for graphs in held if len(theirs & set(graphs.node_id.tolist())) == len(theirs)]
    assert not hasattr(method, "federation"), "the caller's method holds no federation"
    assert not list((tmp_path / "cache").rglob("*.pt"))
    saved = torch.load(tmp_path / "out" / "unlearned.ckpt", weights_only=True)
    assert not saved["federation"]["client_optimizer"]
    for name, tensor in saved["state_dict"].items():
        if ".clients." in name:
            assert not tensor[LEAVER].count_nonzero(), name
            assert torch.equal(tensor, model.state_dict()[name])
