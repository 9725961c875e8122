"""Damaged and truncated cores of processes with mimalloc: notes and problems, never an exception."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import answers
from fixtures import mimallocs as kit

pytestmark = pytest.mark.thorough("hundreds of damaged cores")

DAMAGES = 50
VALUES = (0, 1, 0xFFFF, 1 << 20, (1 << 64) - 1, 0x7FFF_FFFF_F000)


def place(core: Path) -> list[tuple[int, int, int]]:
    """Return (address, end, offset in the file) of the segments."""
    with open(core, "rb") as stream:
        segments = [s.header for s in ELFFile(stream).iter_segments() if s.header.p_type == "PT_LOAD"]
    return [(s.p_vaddr, s.p_vaddr + s.p_filesz, s.p_offset) for s in segments]


def offset(segments: list[tuple[int, int, int]], address: int) -> int:
    return next(at + address - start for start, end, at in segments if start <= address < end)


def own_words(core: Path) -> list[int]:
    """Return addresses of words of mimalloc's own: pages, headers, links of free lists."""
    heap = find_heap(CoreFile(str(core)))
    read = kit.walked(heap).read
    assert read is not None
    words: list[int] = []
    for start, end, _thread in read.regions:
        words += range(start, start + 0x300, 8)
        for slice_ in range(start, min(end, start + (64 << 20)), 1 << 16):
            page = read.page_at(slice_ + 0x8000)
            if page is not None:
                words += range(page[0], page[0] + 112, 8)
                words += range(page[1], page[1] + 8 * page[2], page[2])
    if read.map:
        words += [read.map + 8 * (start >> 29) for start, _end, _thread in read.regions]
    return words


def write(stream: BinaryIO, at: int, value: int) -> bytes:
    stream.seek(at)
    before = stream.read(8)
    stream.seek(at)
    stream.write(value.to_bytes(8, "little"))
    stream.flush()
    return before


@pytest.mark.parametrize("release", kit.PACKAGES)
def test_damage_is_no_crash(release: str, tmp_path: Path) -> None:
    made = kit.take("freed", release)
    core = Path(shutil.copy(made.core, tmp_path / "core"))
    words, segments = own_words(core), place(core)
    dice = random.Random(release)
    told = 0
    with open(core, "r+b") as stream:
        for _ in range(DAMAGES):
            kept = []
            for _ in range(dice.choice((1, 1, 1, 4, 40))):
                address = dice.choice(words)
                value = dice.choice((*VALUES, dice.choice(words), dice.getrandbits(64)))
                kept.append((offset(segments, address), write(stream, offset(segments, address), value)))
            target = CoreFile(str(core))
            heap = find_heap(target)
            heap.leaks()
            report = answers.answer(target, "heapcheck", "--fail-on-damage")
            told += bool(report["status"] or heap.notes)
            for at, before in reversed(kept):
                write(stream, at, int.from_bytes(before, "little"))
    assert told > DAMAGES // 4


@pytest.mark.parametrize("release", ["2.0.9", "3.0.1"])
def test_a_damaged_free_list_is_a_problem(release: str, tmp_path: Path) -> None:
    made = kit.take("freed", release)
    core = Path(shutil.copy(made.core, tmp_path / "core"))
    heap = kit.walked(find_heap(CoreFile(str(core))))
    free = next(
        block.address
        for block in made.truth.blocks.values()
        if block.state == "freed" and (heap.holder(block.address) or "").endswith("free list of its page")
    )
    with open(core, "r+b") as stream:
        write(stream, offset(place(core), free), free + 1)
    report = answers.answer(CoreFile(str(core)), "heapcheck", "--fail-on-damage")
    assert report["status"] == 3
    assert "a free list leads to no block of its page" in str(report)


@pytest.mark.parametrize("release", ["2.0.9", "3.0.1"])
def test_truncated(release: str, tmp_path: Path) -> None:
    made = kit.take("freed", release)
    size = made.core.stat().st_size
    dice = random.Random(release)
    for _ in range(15):
        core = tmp_path / "core"
        shutil.copy(made.core, core)
        with open(core, "r+b") as stream:
            stream.truncate(dice.randrange(1 << 16, size))
        heap = find_heap(CoreFile(str(core)))
        heap.leaks()
        assert heap.notes or heap.index.dump_notes()
        core.unlink()
