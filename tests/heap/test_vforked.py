"""A child that shares its parent's memory: the parent's threads are not in the core, but they have not ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from tests.corekit import HERE, compile_c, kernel_core


@pytest.mark.parametrize("how", ["vfork", "clone"])
@pytest.mark.parametrize("thread", ["main", "thread"])
def test_the_stacks_of_the_parents_threads_hold_blocks(thread: str, how: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "vforked.c", tmp_path / "vforked", "-pthread")
    heap = find_heap(CoreFile(str(kernel_core(program, tmp_path, thread, how))))
    reported = {block.address for block in heap.blocks(DIRECT, INDIRECT)}
    rows = [line.split() for line in (tmp_path / "truth").read_text().splitlines()]
    assert [name for name, hidden in rows if ~int(hidden) & (1 << 64) - 1 in reported] == ["lost", "of-ended-thread"]
    assert any("shares its memory" in note for note in heap.roots.notes)
