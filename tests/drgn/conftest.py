"""Fixtures of the drgn tests: drgn run from outside as a user runs it.

It opens the cores of tests/conftest.py and a kernel's dump.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from fixtures import answers, kernel
from fixtures.answers import user_environment as drgn_environment
from fixtures.limits import HANG
from tests.gdb.conftest import core, program  # core: of a program that leaks

ROOT = Path(__file__).resolve().parents[2]
DRGN = Path(sys.executable).with_name("drgn")

__all__ = ("core", "drgn_environment", "program")

Drgn = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def guest() -> kernel.Guest:
    return kernel.guest("6.1", crash="null")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return an empty folder with the launchers linked into it."""
    folder = tmp_path / "place"
    folder.mkdir()
    subprocess.run([ROOT / "scripts" / "link-launchers", folder, "--all"], check=True, stdout=subprocess.DEVNULL)
    return folder


def own(stderr: str) -> list[str]:
    """Return the lines that dmods wrote to stderr. drgn itself warns of missing symbols."""
    return [line for line in stderr.splitlines() if not line.startswith(("warning: ", "critical: "))]


@pytest.fixture
def drgn(place: Path, tmp_path: Path) -> Drgn:
    """Return a function:

    ``drgn("-c", core, "findleaks")`` runs in ``place``, without the developer's files and a terminal.
    """
    assert DRGN.exists(), f"run {ROOT}/scripts/setup: drgn is not there"
    environment = drgn_environment(tmp_path)

    def run(
        *arguments: object, where: Path = place, timeout: float = HANG, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return answers.finished(DRGN, *arguments, cwd=where, env={**environment, **more}, timeout=timeout)

    return run
