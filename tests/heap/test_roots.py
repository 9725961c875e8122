"""Unusual memory that holds pointers. fixtures/userland/anchors.c has every other kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, LIVE
from dmods.heap.process_heap import find_heap
from dmods.heap.roots import readable_ranges
from tests.corekit import HERE, compile_c, gdb_core, kernel_core


@pytest.mark.parametrize("how", ["read-only data", "data without access", "gcore"])
def test_what_was_locked_after_it_was_written_holds_blocks(how: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    if how == "gcore":
        core = gdb_core(program, tmp_path)
    else:
        core = kernel_core(program, tmp_path, "die", *(["all"] if how == "data without access" else []))
    heap = find_heap(CoreFile(str(core)))
    heap.leaks()
    assert [block.size for block in heap.blocks(DIRECT)] == [5000]
    held = [block for block in heap.blocks(LIVE) if block.size == 104]
    assert len(held) == 5
    assert all(heap.referrers(block, 1) for block in held)


def test_every_word_of_the_dump_that_points_to_a_block_is_found(tmp_path: Path) -> None:
    """For a position-independent program, only memory in the dump is searched."""
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    core = kernel_core(program, tmp_path, "die", "all")
    target = CoreFile(str(core))
    heap = find_heap(target)
    blocks = sorted((block.address, block.end) for block in heap.blocks(LIVE))
    assert heap.pointers(blocks, 1000) == [_words_between(core, *block) for block in blocks]
    of_files = [mapping for mapping in target.mappings() if mapping.path is not None]
    searched = sum(end - start for start, end in readable_ranges(target, of_files))
    assert searched == sum(mapping.dumped for mapping in of_files) < sum(mapping.size for mapping in of_files)


def _words_between(core: Path, low: int, high: int) -> list[int]:
    found = []
    with open(core, "rb") as stream:
        for segment in ELFFile(stream).iter_segments("PT_LOAD"):
            words = memoryview(segment.data()).cast("Q")
            found += [segment["p_vaddr"] + 8 * index for index, word in enumerate(words) if low <= word < high]
    return found
