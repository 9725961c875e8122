"""A heap that could not be searched is never called clean."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.heap.verdict import NO_VERDICT, heap_verdict, leak_verdict
from dmods.output.streaming import Subject
from fixtures import cores, judge, userlands
from fixtures.cores import CoreSet
from tests.auditkit import answer, text

FAIL = {"findleaks": "--fail-on-leak", "heapcheck": "--fail-on-damage"}
UNWALKED = ("libtcmalloc-minimal4", "libtcmalloc_minimal_debug.so.4")  # (package, library)


def cut(made: CoreSet, where: Path, size: int) -> CoreFile:
    """Return the core, cut to its first `size` bytes."""
    shutil.copyfile(made.core, where / "cut")
    os.truncate(where / "cut", size)
    return CoreFile(str(where / "cut"))


def status(path: Path, *words: str) -> tuple[int, str]:
    """Return the exit status of the standalone command, and what it writes to stdout."""
    command = [sys.executable, "-m", "dmods", *words, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("command", FAIL)
def test_a_core_that_is_cut_before_its_heap(command: str, tmp_path: Path) -> None:
    target = cut(cores.take("sizes"), tmp_path, 300_000)
    for words in ((), (FAIL[command],)):
        report = answer(target, command, *words)
        assert report["status"] == NO_VERDICT
        assert not report["verdict"]["possible"]
        assert "truncated" in report["verdict"]["reason"]
    printed = text(target, command)
    assert "no verdict: " in printed
    assert "0 buffers" not in printed
    code, out = status(tmp_path / "cut", command, FAIL[command])
    assert code == NO_VERDICT
    assert "no verdict: " in out


#: Every other command that counts blocks or says what leaked. An empty answer of theirs would read as clean.
OTHERS = (
    *(("owners",), ("types",), ("heapsizes",), ("malloc_stats",), ("suspects",)),
    *(("walk", "leak"), ("walk", "leakbuf")),
)


def assert_no_verdict(target: Subject) -> None:
    """Check that no command calls the process clean, in its status, its text or its totals."""
    for words in (("findleaks",), ("heapcheck",), *OTHERS):
        report = answer(target, *words)
        assert report["status"] == NO_VERDICT, words
        assert not report["verdict"]["possible"], words
        if words[0] == "walk":  # a script reads addresses there
            assert text(target, *words) == "", words
        else:
            assert "no verdict: " in text(target, *words), words
        leaked = {name: value for name, value in report["totals"].items() if "leaked" in name or "direct" in name}
        assert set(leaked.values()) <= {None}, words


def test_no_command_calls_a_cut_core_clean(tmp_path: Path) -> None:
    assert_no_verdict(cut(cores.take("sizes"), tmp_path, 300_000))


def test_an_allocator_that_is_not_walked() -> None:
    path = userlands.packaged(userlands.get("host"), *UNWALKED)
    target = judge.open_core(cores.take("graph", env={"LD_PRELOAD": str(path)}))
    for command, option in FAIL.items():
        report = answer(target, command, option)
        assert report["status"] == NO_VERDICT
        assert report["verdict"]["reason"].startswith("malloc of this process is tcmalloc,")
    assert_no_verdict(target)


@pytest.mark.parametrize("program", ["nomalloc", "freestanding"])
def test_a_process_without_a_heap(program: str) -> None:
    made = cores.take(program, variant="static" if program == "freestanding" else "dynamic")
    for command, option in FAIL.items():
        report = answer(CoreFile(str(made.core)), command, option)
        assert report["status"] == NO_VERDICT
        assert report["verdict"]["reason"].startswith("no heap")


def test_without_the_stacks_there_is_no_verdict_on_leaks(tmp_path: Path) -> None:
    """The stack of the main thread lies at the end of a core."""
    made = cores.take("sizes")
    target = cut(made, tmp_path, made.core.stat().st_size - (100 << 10))
    heap = find_heap(target)
    assert heap.found
    assert heap_verdict(heap).possible
    verdict = leak_verdict(heap)
    assert not verdict.possible
    assert "no stack" in verdict.reason


def test_a_verdict_on_a_part_is_said_to_be_partial(tmp_path: Path) -> None:
    """Some threads' stacks are missing. The leaks are listed, with the exit status of leaks."""
    made = cores.take("arenas")
    target = cut(made, tmp_path, made.core.stat().st_size * 98 // 100)
    report = answer(target, "findleaks", "--fail-on-leak")
    assert report["status"] == 3
    assert report["verdict"]["possible"]
    assert "stacks are not in the dump" in report["verdict"]["reason"]
    assert f"the verdict is partial: {report['verdict']['reason']}" in report["notes"]


@pytest.mark.quick("kernel-sizes", "kernel-arenas", "gcore-freed")
@pytest.mark.parametrize("program", ["sizes", "arenas", "freed"])
@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_a_whole_core_has_a_whole_verdict(program: str, how: str) -> None:
    heap = find_heap(CoreFile(str(cores.take(program, how).core)))
    assert leak_verdict(heap) == heap_verdict(heap)
    assert leak_verdict(heap).possible
    assert not leak_verdict(heap).reason
