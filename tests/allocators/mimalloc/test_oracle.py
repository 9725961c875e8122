"""The blocks of mimalloc as mi_heap_visit_blocks() counts them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import cores
from fixtures import mimallocs as kit
from tests.corekit import compile_c

HERE = Path(__file__).parent


@pytest.mark.thorough("a core of its own")
@pytest.mark.parametrize("release", kit.PACKAGES)
def test_count_and_bytes_are_those_of_mimalloc(release: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "visited.c", tmp_path / "visited", "-O1", "-ldl")
    work = tmp_path / "work"
    work.mkdir()
    cores.check_core_pattern()
    done = subprocess.run(
        ["prlimit", "--core=unlimited", "env", f"LD_PRELOAD={kit.library(release)}", program],
        cwd=work,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode < 0
    count, size = map(int, done.stdout.split())
    assert count > 5000
    heap = find_heap(CoreFile(str(next(work.glob("core*")))))
    one = kit.walked(heap)
    assert one.problems == []
    assert one.read is not None
    found = []
    for block in heap.blocks(LIVE, DIRECT, INDIRECT):
        page = one.read.page_at(block.address)
        # 3.0 gives up pages that are full, and then does not visit them.
        if page is not None and (release != "3.0.1" or page[6]):
            found.append(block.size)
    assert (len(found), sum(found)) == (count, size)
