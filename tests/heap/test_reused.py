"""Words behind the text of a string are left over, and hold nothing (tests/heap/reused.cc, tests/heap/reused.rs)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Optional

import pytest

from fixtures import answers, jemallocs, libcxx
from tests.corekit import HERE, kernel_core

COUNT = 500


def _leaks(command: list[str], source: str, where: Path, preload: Optional[str] = None) -> int:
    """Return how many blocks findleaks reports of the program, which lost ``COUNT``."""
    program = where / "reused"
    subprocess.run([*command, str(HERE / "heap" / source), "-o", str(program)], check=True)
    core = kernel_core(program, where, str(COUNT), env={"LD_PRELOAD": preload} if preload else None)
    return int(answers.typed("findleaks", core)["totals"]["leaked_count"])


def test_strings_of_libstdcxx(tmp_path: Path) -> None:
    assert _leaks(["g++", "-O1"], "reused.cc", tmp_path) == COUNT


def test_strings_of_rust(tmp_path: Path) -> None:
    assert _leaks(["rustc", "-O", "-Awarnings"], "reused.rs", tmp_path) == COUNT


@pytest.mark.thorough("it needs packages of Debian")
def test_strings_of_libcxx(tmp_path: Path) -> None:
    assert _leaks([*libcxx.compiler(), "-O1"], "reused.cc", tmp_path) == COUNT


@pytest.mark.thorough("it needs a package of Debian")
@pytest.mark.parametrize(("command", "source"), [(["g++", "-O1"], "reused.cc"), (["rustc", "-O"], "reused.rs")])
def test_strings_in_jemalloc(command: list[str], source: str, tmp_path: Path) -> None:
    assert _leaks(command, source, tmp_path, jemallocs.library()) == COUNT
