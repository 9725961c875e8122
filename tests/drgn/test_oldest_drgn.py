"""The oldest drgn that pyproject.toml allows: every command for kernels gives the answers of the newest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drgnext.kernel.dump.target import Kernel
from fixtures import _cache, kernel
from fixtures.answers import finished
from tests.kernel.crashed import ask, open_program

pytestmark = pytest.mark.thorough("it installs another drgn")

LINES = (
    *(("panicinfo",), ("findstack",), ("trapframe",), ("stacks",), ("memstat",), ("walk", "task"), ("dentries",)),
    *(("dmesg",), ("files", "1"), ("inflight", "-a"), ("irq", "-a"), ("locks", "-a"), ("meminfo",), ("memcgs",)),
    *(("mounts",), ("netdev",), ("ps", "-T"), ("runq",), ("sockets",), ("swapinfo",), ("timers",)),
    *(("vmalloc",), ("workqueues", "-a")),
)


@pytest.fixture(scope="module")
def oldest() -> Path:
    """Return the Python of an environment with that drgn."""
    told = re.search(r'"drgn>=([0-9.]+)"', (_cache.ROOT / "pyproject.toml").read_text())
    assert told is not None

    def install(work: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", work], check=True)
        subprocess.run(
            [work / "bin/python", "-m", "pip", "install", "-q", f"drgn=={told[1]}", "pyelftools"], check=True
        )

    where = _cache.CACHE / "drgn" / f"{told[1]}-{_cache.key(sys.version, told[1])}"
    return _cache.make(where, f"drgn {told[1]}", install, in_place=True) / "bin/python"


def says(python: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    guest = kernel.guest("6.1", "null", dump="kexec")
    symbols = [word for path in (guest.vmlinux, *guest.modules) for word in ("-s", path)]
    launcher = _cache.ROOT / "drgnext" / "launcher.py"
    done = finished(python, "-m", "drgn", "-q", "-c", guest.vmcore, *symbols, launcher, *words, "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_the_oldest_answers_as_the_newest(oldest: Path, words: tuple[str, ...]) -> None:
    target = Kernel(open_program(kernel.guest("6.1", "null", dump="kexec")))
    old: Any = json.loads(says(oldest, words).stdout)
    new = ask(target, *words)
    for table in (*old["tables"], *new["tables"]):
        for row in table["rows"]:
            row.pop("lie", None)  # what drgn's own trace says
    assert old["tables"] == new["tables"]
