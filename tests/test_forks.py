"""Commands that run in a child of a process that has imported dmods (fixtures/forks.py) are as those of users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.answers import ROOT, finished
from fixtures.forks import forks
from fixtures.limits import HANG
from tests.corekit import Crash


@pytest.mark.parametrize(
    "words",
    [
        ["maps", "{}", "--json"],
        ["findleaks", "{}"],
        ["maps"],
        ["maps", "/nonexistent"],
        ["help", "maps"],
        ["--version"],
    ],
)
def test_output_and_status_are_the_same(words: list[str], crashed: Crash, tmp_path: Path) -> None:
    argv = [word.format(crashed.core) for word in words]
    env = {**os.environ, "HOME": str(tmp_path)}
    forked = forks().run(argv, tmp_path, env, HANG)
    started = finished(sys.executable, "-m", "dmods", *argv, cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)})
    assert forked.stdout or forked.stderr
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_what_python_reads_when_it_starts_needs_a_new_process(tmp_path: Path) -> None:
    assert forks().takes({"cwd": ROOT, "timeout": 1})
    assert forks().takes({"cwd": tmp_path})
    (tmp_path / "dmods").mkdir()
    assert not forks().takes({"cwd": tmp_path})
    assert not forks().takes({"env": {**os.environ, "PYTHONPATH": "/tmp"}})
    assert not forks().takes({"stdin": subprocess.PIPE})


def test_a_command_that_takes_too_long_is_ended(crashed: Crash) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks().run(["triage", str(crashed.core)], ROOT, None, 0.001)
    assert forks().run(["--version"], ROOT, None, HANG).returncode == 0
