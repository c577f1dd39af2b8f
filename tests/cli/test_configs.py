"""Every file in configs/ parses, and every whole job in it runs."""

from pathlib import Path

import pytest
import yaml
from tiny import TINY_JOB

from page_lightning.cli import config_folder

FOLDER = config_folder()
FILES = [path.relative_to(FOLDER) for path in sorted(FOLDER.rglob("*.yaml"))]
JOBS = [path for path in FILES if path.parts[0] in {"experiment", "demo.yaml"}]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_parses(page_lightning, path):
    verb = "unlearn" if path.parts[0] in {"method", "request"} else "fit"
    said = page_lightning(verb, "--config", Path("configs", path), "--print_config")
    merged = yaml.safe_load(said.out)
    given = yaml.safe_load((FOLDER / path).read_text())
    for key in ("max_epochs", "logger"):
        if key in given.get("trainer", {}):
            assert merged["trainer"][key], key
    for option in given.get("data", {}):
        if option != "partitioner":
            assert merged["data"][option] == given["data"][option]


@pytest.mark.parametrize("path", JOBS, ids=str)
def test_fits_validates_and_tests(page_lightning, tmp_path, path):
    job = ("--config", Path("configs", path), *TINY_JOB, "--model.local_epochs", "2")
    fitted = page_lightning("fit", *job)
    assert "round 2/2" in fitted.out
    checkpoint = ("--ckpt_path", "runs/version_0/checkpoints/last.ckpt")
    assert "val: local on local" in page_lightning("validate", *job, *checkpoint).out
    tested = page_lightning("test", *job, *checkpoint)
    assert "test: global on local" in tested.out
    assert not tested.err
    assert (tmp_path / "runs" / "version_2" / "clients.csv").read_text().count("local_on_local,") == 3 * 3


def test_there_is_a_job_for_every_data_set():
    def sources(folder):
        return {yaml.safe_load(path.read_text())["data"]["source"] for path in (FOLDER / folder).glob("*.yaml")}

    assert sources("data") == sources("experiment")
