"""What the drgn tests share: drgn run from outside as a user runs it, on the cores of the base (tests/conftest.py) and
on a kernel's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from fixtures import kernel
from tests.gdb.conftest import core, program  # a core of a program that leaks

ROOT = Path(__file__).resolve().parents[2]
DRGN = Path(sys.executable).with_name("drgn")

__all__ = ("core", "program")

Drgn = Callable[..., "subprocess.CompletedProcess[str]"]


def drgn_environment(home: Path) -> dict[str, str]:
    left_out = ("DEBUGINFOD_URLS", "PYTHONPATH", "PYTHONHOME", "COLUMNS", "LINES", "DRGN_PLUGINS", "XDG_STATE_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "HOME": str(home), "LC_ALL": "C.UTF-8", "TERM": "dumb"}


@pytest.fixture(scope="session")
def guest() -> kernel.Guest:
    return kernel.guest("6.1", crash="null")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder, with the launchers linked into it."""
    folder = tmp_path / "place"
    subprocess.run([ROOT / "scripts" / "link-launchers", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def own(stderr: str) -> list[str]:
    """What dmods said there: drgn warns of missing symbols by itself."""
    return [line for line in stderr.splitlines() if not line.startswith(("warning: ", "critical: "))]


@pytest.fixture
def drgn(place: Path, tmp_path: Path) -> Drgn:
    """``drgn("-c", core, "findleaks")`` in ``place``, without the developer's own files, and with no terminal."""
    assert DRGN.exists(), f"run {ROOT}/scripts/setup: drgn is not there"
    environment = drgn_environment(tmp_path)

    def run(
        *arguments: object, where: Path = place, timeout: float = 60, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [DRGN, *map(str, arguments)],
            cwd=where,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
