"""The command line, in this process and in a folder of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from page_lightning.cli import main


@dataclass
class Outcome:
    """What one call left behind."""

    status: int
    out: str
    err: str


PageLightning = Callable[..., Outcome]


@pytest.fixture
def page_lightning(tmp_path, monkeypatch, capsys) -> PageLightning:
    """Runs ``page-lightning`` with some arguments; the working folder is ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args, expect=0) -> Outcome:
        capsys.readouterr()
        status = 0
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            status = end.code or 0
        outcome = Outcome(status, *capsys.readouterr())
        assert expect is None or status == expect, outcome.err
        return outcome

    return run
