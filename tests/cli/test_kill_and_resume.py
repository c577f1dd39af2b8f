"""``kill -9`` in the middle of a run, then the same bits as without."""

import os
import signal
import subprocess
import sys
import time

import torch
from tiny import TINY_JOB

JOB = (*TINY_JOB, "--trainer.max_epochs", "40", "--model.local_epochs", "20", "--checkpoint.every_n_rounds", "1")
LAST = "runs/version_0/checkpoints/last.ckpt"


def test_resumes_bit_identically(page_lightning, tmp_path, monkeypatch):
    killed = tmp_path / "killed"
    killed.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "page_lightning", "fit", *JOB]
    with subprocess.Popen(command, cwd=killed, env=environment, stdout=subprocess.DEVNULL) as process:
        patience = time.monotonic() + 120
        while not (killed / LAST).exists():
            assert process.poll() is None
            assert time.monotonic() < patience
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    interrupted = torch.load(killed / LAST, weights_only=True)
    assert 1 <= interrupted["global_step"] < 40

    page_lightning("fit", *JOB)
    monkeypatch.chdir(killed)
    page_lightning("fit", *JOB, "--ckpt_path", LAST)
    whole = torch.load(tmp_path / LAST, weights_only=True)
    resumed = torch.load(killed / "runs" / "version_1" / "checkpoints" / "last.ckpt", weights_only=True)
    assert whole["global_step"] == resumed["global_step"] == 40
    assert whole["state_dict"].keys() == resumed["state_dict"].keys()
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(tensor, resumed["state_dict"][name]), name
    assert whole["federation"]["ledger"] == resumed["federation"]["ledger"]
    assert whole["federation"]["best"] == resumed["federation"]["best"]
