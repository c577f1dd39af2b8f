"""Fixtures shared by all tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: processes side by side must not fight for the cores


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with real data sets: PAGE_LIGHTNING_DATA, else ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("PAGE_LIGHTNING_DATA", beside))
    if not root.is_dir():
        pytest.skip(f"no real data sets: {root} is not a folder (set PAGE_LIGHTNING_DATA)")
    return root


@pytest.fixture(autouse=True)
def no_run_left_open() -> Iterator[None]:
    """Ends the W&B run that a command line leaves open until its process ends."""
    yield
    if "wandb" in sys.modules and sys.modules["wandb"].run is not None:
        sys.modules["wandb"].finish()
