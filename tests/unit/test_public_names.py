"""What ``import page_lightning`` offers, and what it costs."""

import subprocess
import sys

from tiny import TINY

import page_lightning


def test_every_public_name_is_there():
    assert set(page_lightning.__all__) == set(page_lightning._HOME)
    for name in page_lightning.__all__:
        assert getattr(page_lightning, name).__name__ == name
    assert set(page_lightning.__all__) <= set(dir(page_lightning))
    assert not hasattr(page_lightning, "nothing")


def test_the_import_alone_is_light():
    code = "import sys, page_lightning; print(sorted({'torch', 'lightning', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_forgetting_in_a_few_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from page_lightning import (
        AuditOptions,
        FederatedGraphDataModule,
        FederatedTrainer,
        FederatedTraining,
        FineTune,
        RequestOptions,
        Retrain,
    )

    model, data = FederatedTraining(), FederatedGraphDataModule(num_clients=3, source_args=TINY, cache="cache")
    trainer = FederatedTrainer(max_epochs=2, accelerator="cpu", logger=False)
    request = RequestOptions(kind="node", ratio=0.1)
    audit = AuditOptions(retrains=2)
    report = trainer.unlearn(model, data, method=FineTune(), request=request, compare=[Retrain()], audit=audit)
    assert report.row("fine_tune").figures.metrics["retained_accuracy"].value is not None
    assert "retrain" in report.markdown()
    assert (tmp_path / "unlearned" / "unlearned.ckpt").is_file()
    assert data.graphs.num_nodes == 150 - report.request["num_nodes"]
