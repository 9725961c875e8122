"""Threads that ended and were not joined (tests/process/unjoined.c, which is told how many to make of each kind)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import Finding
from dmods.heap.unjoined import find_unjoined
from dmods.process.ended_threads import unjoined_threads
from dmods.process.threads import stacks_of
from dmods.target import Target
from dmods.triage.process import triage_process
from tests.corekit import HERE, compile_c, dumped_in, kernel_core

_SOURCE = HERE / "process" / "unjoined.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(_SOURCE, tmp_path_factory.mktemp("unjoined") / "unjoined", "-pthread")


def dumped(program: Path, where: Path, how: str) -> CoreFile:
    return CoreFile(str(kernel_core(program, where, *how.split())))


def ran(target: Target) -> Counter[tuple[str, bool]]:
    """Return how many threads ran which function, and whether somebody has their pthread_t."""
    found: Counter[tuple[str, bool]] = Counter()
    for each in find_unjoined(target).threads:
        found[_name(target, each.thread.start), each.held] += 1
    return found


def _name(target: Target, start: Optional[int]) -> str:
    symbol = target.symbol_at(start or 0)
    return symbol.name if symbol is not None else "?"


def finding(target: Target) -> list[Finding]:
    return triage_process(target, "unjoined").findings


def test_those_that_nobody_can_join(program: Path, tmp_path: Path) -> None:
    target = dumped(program, tmp_path, "20 3 5 5 128")
    assert ran(target) == {("work_lost", False): 15, ("work_exits", False): 5, ("work_kept", True): 3}
    (found,) = finding(target)
    assert (found.kind, found.severity, found.confidence) == ("unjoined-threads", "serious", "likely")
    # Each stack has a guard page.
    assert found.what == (
        "23 threads have ended and were never joined: libc keeps 3.0M of address space for their stacks; "
        "15 of them ran work_lost; nothing has the pthread_t of 20 of them any more"
    )


def test_a_stack_whose_end_is_not_known_hides_no_function(program: Path, tmp_path: Path) -> None:
    """Other memory may follow a stack in the same mapping."""
    target = dumped(program, tmp_path, "20 3 5 5 128")
    stacks = stacks_of(target)
    first = unjoined_threads(target, stacks).threads[0].stack
    cut = [each._replace(end=each.end + 4096) if each is first else each for each in stacks]
    threads = unjoined_threads(target, cut).threads
    assert {"work_lost", "work_exits", "work_kept"} == {_name(target, each.start) for each in threads}


def test_those_that_could_be_joined_are_a_guess(program: Path, tmp_path: Path) -> None:
    target = dumped(program, tmp_path, "0 30 5 5 128")
    assert ran(target) == {("work_kept", True): 30}
    (found,) = finding(target)
    assert (found.severity, found.confidence) == ("waste", "possible")


@pytest.mark.parametrize("how", ["0 0 20 20 128", "0 30 0 0 128 join", "3 5 2 2 128"])
def test_healthy_programs_have_no_finding(program: Path, tmp_path: Path, how: str) -> None:
    target = dumped(program, tmp_path, how)
    lost, kept, *_ = map(int, how.split()[:4])
    assert sum(ran(target).values()) == lost + kept
    assert finding(target) == []


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "sid", "i386-bookworm", "i386-bullseye"])
def test_other_releases_and_machines(userland: str) -> None:
    compiler = ["gcc", "-O1", "-g", "-pthread"]
    with dumped_in(userland, _SOURCE, compiler, "20", "3", "5", "5", "128") as (core, sysroot):
        target = CoreFile(str(core), sysroot=str(sysroot))
        assert ran(target) == {("work_lost", False): 15, ("work_exits", False): 5, ("work_kept", True): 3}
