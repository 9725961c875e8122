"""Unusual memory that holds pointers. fixtures/userland/anchors.c has every other kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import Segment

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, LIVE
from dmods.heap.heap import find_heap
from dmods.heap.roots.live_memory import readable_ranges
from tests.corekit import HERE, compile_c, gdb_core, kernel_core


@pytest.mark.parametrize("how", ["read-only data", "data without access", "gcore"])
def test_what_was_locked_after_it_was_written_holds_blocks(how: str, tmp_path: Path) -> None:
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    if how == "gcore":
        core = gdb_core(program, tmp_path)
    else:
        core = kernel_core(program, tmp_path, "die", *(["all"] if how == "data without access" else []))
    # With protection keys, the kernel cannot read memory that can only be executed. gdb can.
    _check_locked(core, 5 if all(_has_bytes(core, segment) for segment in _execute_only(core)) else 4)


def test_execute_only_memory_that_the_kernel_could_not_read(tmp_path: Path) -> None:
    """The core is as one of a processor with protection keys: the segment is there, and its bytes are zeros."""
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    core = kernel_core(program, tmp_path, "die")
    segments = _execute_only(core)
    assert segments
    with open(core, "r+b") as stream:
        for segment in segments:
            stream.seek(segment["p_offset"])
            stream.write(bytes(segment["p_filesz"]))
    _check_locked(core, 4)


def _check_locked(core: Path, count: int) -> None:
    """Check how many of the five blocks in locked memory are live, and what the notes say of the others."""
    heap = find_heap(CoreFile(str(core)))
    assert sorted(block.size for block in heap.blocks(DIRECT)) == [104] * (5 - count) + [5000]
    held = [block for block in heap.blocks(LIVE) if block.size == 104]
    assert len(held) == count
    assert all(heap.index.referrers(block, 1) for block in held)
    notes = [note for note in heap.roots.notes if "execute" in note]
    assert len(notes) == (count < 5)
    assert all("could not read 1 mapping " in note for note in notes)


def _execute_only(core: Path) -> list[Segment]:
    """Return the segments of the program's memory that can only be executed."""
    with open(core, "rb") as stream:
        segments = list(ELFFile(stream).iter_segments("PT_LOAD"))
    return [each for each in segments if each["p_flags"] == 1 and each["p_filesz"] and each["p_vaddr"] < 1 << 63]


def _has_bytes(core: Path, segment: Segment) -> bool:
    with open(core, "rb") as stream:
        stream.seek(segment["p_offset"])
        return any(stream.read(segment["p_filesz"]))


def test_every_word_of_the_dump_that_points_to_a_block_is_found(tmp_path: Path) -> None:
    """For a position-independent program, only memory in the dump is searched."""
    program = compile_c(HERE / "locked.c", tmp_path / "locked")
    core = kernel_core(program, tmp_path, "die", "all")
    target = CoreFile(str(core))
    heap = find_heap(target)
    blocks = sorted((block.address, block.end) for block in heap.blocks(LIVE))
    assert heap.index.pointers(blocks, 1000) == [_words_between(core, *block) for block in blocks]
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
