"""CPython's own heap over a preloaded malloc: two heaps in one process. The program says which blocks it lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dmods.allocators.pymalloc.heap import PymallocHeap
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT, OWN
from dmods.heap.heap import find_heap
from fixtures import answers, cores, jemallocs, mimallocs, tcmallocs, userlands
from fixtures.heaps import others

pytestmark = pytest.mark.thorough("a core of its own for each allocator")

HIDDEN = 0x5A5A5A5A5A5A5A5A
PROGRAM = f"""
import ctypes, os
kept = [{{str(i): [i] * (i % 50)}} for i in range(20000)]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def lose(size):
    block = libc.malloc(size)
    ctypes.memset(block, 0x55, size)
    os.write(1, b"%d %d\\n" % (block ^ {HIDDEN}, size))
for size in range(600, 1600, 100):
    lose(size)
os.abort()
"""


def library(allocator: str) -> str:
    if allocator == "tcmalloc":
        return tcmallocs.library()
    if allocator == "jemalloc":
        return str(userlands.packaged(userlands.get("host"), jemallocs.PACKAGE, jemallocs.LIBRARY))
    return str(mimallocs.library("2.0.9"))


@pytest.mark.parametrize("allocator", ["jemalloc", "mimalloc", "tcmalloc"])
def test_blocks_that_are_lost_below_pythons_pools(allocator: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    cores.check_core_pattern()
    done = subprocess.run(
        ["prlimit", "--core=unlimited", "/usr/bin/python3", "-s", str(tmp_path / "program.py")],
        cwd=tmp_path,
        env={**os.environ, "LD_PRELOAD": library(allocator)},
        stdout=subprocess.PIPE,
        check=False,
    )
    lost = {int(at) ^ HIDDEN: int(size) for at, size in (line.split() for line in done.stdout.splitlines())}
    assert len(lost) == 10
    target = CoreFile(str(next(tmp_path.glob("core*"))))
    heap = find_heap(target)
    assert any(isinstance(one, PymallocHeap) for one in others(heap))
    leaked = {block.address: block for block in heap.blocks(DIRECT, INDIRECT) if block.state != OWN}
    assert leaked.keys() == lost.keys()
    assert all(block.allocator == allocator and block.size >= lost[at] for at, block in leaked.items())
    rows = answers.by_name(answers.answer(target, "heapcheck"))
    assert {row["verdict"] for table in rows.values() for row in table if "verdict" in row} == {"clean"}
