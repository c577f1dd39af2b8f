"""Graphs that the data tests share."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from page_lightning.data.source import SourceGraph
from page_lightning.data.sources import load_source

Load = Callable[[str], SourceGraph]


@pytest.fixture(scope="session")
def load(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a named data set from the real files, once a session."""
    folder = tmp_path_factory.mktemp("cache")
    return cache(lambda name: load_source(name, data_root, folder))
