"""The fit path on one CUDA device."""

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tiny import TINY

from page_lightning.backbones import GAT, GCN, GIN, SGC, GraphSAGE
from page_lightning.data import FederatedGraphDataModule
from page_lightning.modules import FederatedTraining
from page_lightning.trainer import FederatedTrainer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


class ForbidWaiting(Callback):
    """Any wait for the device inside a training step is an error from round 2 on."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.current_epoch >= 2:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        torch.cuda.set_sync_debug_mode("default")

    def on_exception(self, trainer, module, exception):
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("backbone", [GCN(8), GAT(8), GraphSAGE(8), SGC(), GIN(8)], ids=lambda b: type(b).__name__)
def test_a_round_never_waits_for_the_device(tmp_path, backbone):
    model = FederatedTraining(backbone)
    trainer = FederatedTrainer(
        max_epochs=4, accelerator="gpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path,
        callbacks=[ForbidWaiting()],
    )  # fmt: skip
    trainer.fit(model, datamodule=FederatedGraphDataModule(num_clients=3, source_args=TINY))
    assert trainer.global_step == 4
    assert next(model.federation.server.parameters()).is_cuda
    (scores,) = trainer.test(model, datamodule=trainer.datamodule, verbose=False)
    assert scores["test/local_on_local/accuracy"] > 0.4
