"""What the README says can be done is done, as it stands there; but for its own test line."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from page_lightning.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text()
COMMANDS = [
    line.rpartition("&& ")[2] if line.startswith("python3 -m venv") else line
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.strip().splitlines()
]
SECTIONS = [re.findall(r"^(page-lightning .*)$", part, re.MULTILINE) for part in README.split("\n## ")[1:]]


def run(command, capsys):
    capsys.readouterr()
    program, *args = shlex.split(command.replace("~", os.environ["HOME"]))
    assert program == "page-lightning"
    with suppress_success():
        main(args)
    return capsys.readouterr().out


@contextmanager
def suppress_success():
    """Lets only a failing ``SystemExit`` through."""
    try:
        yield
    except SystemExit as end:
        if end.code and end.code not in {3, 4}:  # a verdict of verify
            raise


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working folder that is also the home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path


def test_main_job(elsewhere, capsys):
    (command,) = [c for c in COMMANDS if c.endswith("--request.kind client --request.ratio 0.2")]
    shown = run(command, capsys)
    assert "round 50/50" in shown
    for line in re.findall(r"^ (?:original|no_op|retrain|page_plus) .*$", README, re.MULTILINE):  # the table as printed
        name, *figures = line.split()
        printed = [own.split() for own in shown.splitlines()]
        assert [len(own) for own in printed if own[:1] == [name] and own[1][0].isdigit()] == [len(figures) + 1]
    names = {path.name for path in (elsewhere / "unlearned").rglob("*")}
    assert {"report.json", "table.md", "figures", "unlearned.ckpt", "request.json"} <= names


@pytest.mark.parametrize("commands", [s for s in SECTIONS if s], ids=lambda s: s[0].split("--", 1)[1][:60])
def test_commands(elsewhere, capsys, commands, request):
    if any("~/graphs" in command for command in commands):
        (elsewhere / "graphs").symlink_to(request.getfixturevalue("data_root"))
    if any("client_parallel" in command for command in commands):  # starts itself again: needs a process of its own
        program = shutil.which("page-lightning", path=Path(sys.executable).parent)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for command in commands:
            subprocess.run([program, *shlex.split(command)[1:]], check=True, timeout=240, env=environment)
        return
    for command in commands:
        assert run(command, capsys)


def test_python(elsewhere):
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in snippet.splitlines() if line]) <= 10
    result = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=240, check=True)
    assert "| fine_tune" in result.stdout


def test_every_file_it_names_exists():
    root = Path(__file__).parents[1]
    names = re.findall(r"configs/[\w/]+(?:\.yaml)?", README) + re.findall(r"\]\(([\w.]+)\)", README)
    assert len(names) > 10
    for name in names:
        assert (root / name).exists(), name


def test_continuous_integration_runs_the_test_line():
    lines = [line for line in README.splitlines() if line.startswith("python3 -m venv") and "pytest" in line]
    assert len(lines) == 1
    assert "grep -m 1 '^python3 -m venv.*pytest' README.md" in (Path(__file__).parents[1] / ".ci" / "run").read_text()
