"""Memory that holds pointers and that one would not think of. (Every other kind: fixtures/userland/anchors.c.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods import heap as heaps
from dmods.corefile import CoreFile
from tests.corekit import HERE, compile_c, gdb_core, kernel_core


@pytest.mark.parametrize("how", ["read-only data", "data without access", "gcore"])
def test_what_was_locked_after_it_was_written_holds_blocks(how: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    if how == "gcore":
        core = gdb_core(program, tmp_path)
    else:
        core = kernel_core(program, tmp_path, "die", *(["all"] if how == "data without access" else []))
    heap = heaps.of(CoreFile(str(core)))
    heap.leaks()
    assert [block.size for block in heap.blocks(heaps.DIRECT)] == [5000]
    held = [block for block in heap.blocks(heaps.LIVE) if block.size == 104]
    assert len(held) == 5
    assert all(heap.referrers(block, 1) for block in held)
