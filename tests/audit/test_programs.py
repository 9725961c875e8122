"""Real programs pass their own tests under the auditor with all words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.audit.auditor import environment

PYTHON = "/usr/bin/python3"
_MORE = pytest.mark.thorough("other parts of the suite are tested")


@pytest.mark.parametrize(
    "suite", [["test_dict", "test_thread"], pytest.param(["test_json", "test_ctypes"], marks=_MORE)], ids="-".join
)
def test_cpython(tmp_path: Path, suite: list[str]) -> None:
    """With PYTHONMALLOC=malloc every object is a block."""
    variables = environment("audit,log=10000,contents=64,guards", PYTHONMALLOC="malloc")
    command = [PYTHON, "-m", "test", "-q", *suite]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named" not in done.stderr, "scripts/setup installs libpython3-testsuite of this Python"
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dmods audit" not in done.stderr
