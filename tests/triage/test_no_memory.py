"""A process that died of a malloc() that failed, and one that died of something else while errno still said ENOMEM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import CERTAIN, LIKELY, Finding
from dmods.triage.process import triage_process
from tests.corekit import kernel_core

_DIED_OF_IT = {
    "used": "malloc() returned NULL",
    "used_later": "calloc() returned NULL",
    "passed": "malloc() returned NULL",
    "copied": "malloc() returned NULL",
    "checked": "because malloc() returned NULL",
    "said": "because malloc() returned NULL",
}
_DIED_OF_ANOTHER = {
    "of_nothing": "null-pointer",
    "not_found": "null-pointer",
    "other_block": "null-pointer",
    "on_purpose": "abort",
    "either": "abort",
}
_BUILDS = {"O0": ("-O0",), "O2": ("-O2",), "O1-stripped": ("-O1", "-s"), "Os-static": ("-Os", "-static", "-no-pie")}
BUILDS = pytest.mark.parametrize("build", [*_BUILDS])


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def _finding(programs: Path, build: str, way: str, where: Path, checks: str = "death") -> list[Finding]:
    program = programs / build
    if not program.exists():
        source = Path(__file__).with_name("no_memory.c")
        subprocess.run(["gcc", "-w", *_BUILDS[build], str(source), "-o", str(program)], check=True)
    core = kernel_core(program, where, way)
    return triage_process(CoreFile(str(core)), checks).findings


@pytest.mark.quick("used-O2", "said-O2", "checked-O0", "copied-O1-stripped")
@BUILDS
@pytest.mark.parametrize("way", [*_DIED_OF_IT])
def test_a_failed_malloc_is_proved(way: str, build: str, programs: Path, tmp_path: Path) -> None:
    (found,) = _finding(programs, build, way, tmp_path)
    # printf() could have written to the variable on the stack.
    sure = LIKELY if (way, build) == ("used_later", "O0") else CERTAIN
    assert (found.kind, found.confidence) == ("out-of-memory", sure), found
    assert _DIED_OF_IT[way] in found.what
    assert "errno is ENOMEM" in found.what


@pytest.mark.quick("not_found-O2", "other_block-O0", "either-O2", "on_purpose-O1-stripped")
@BUILDS
@pytest.mark.parametrize("way", [*_DIED_OF_ANOTHER])
def test_an_old_errno_is_a_hint(way: str, build: str, programs: Path, tmp_path: Path) -> None:
    found, *more = _finding(programs, build, way, tmp_path, "death,exhausted")
    assert (found.kind, found.confidence) == (_DIED_OF_ANOTHER[way], CERTAIN), found
    assert "ENOMEM" not in found.what
    assert "errno is ENOMEM" in found.alternative
    assert more == []


@pytest.mark.quick("O2")
@BUILDS
def test_a_function_that_calls_malloc_makes_it_likely(build: str, programs: Path, tmp_path: Path) -> None:
    (found,) = _finding(programs, build, "wrapped", tmp_path)
    assert (found.kind, found.confidence) == ("out-of-memory", LIKELY), found
