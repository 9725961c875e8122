"""Marks of Go's collector in spans that wait for the sweeper, as the runtime lays them out.

The layouts are those of runtime/mheap.go (struct mspan of 1.26) and runtime/mgcmark_greenteagc.go (spanInlineMarkBits).
``test_sweep.py`` has real programs.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dmods.base.words import Words
from dmods.corefile.target import CoreFile
from dmods.runtimes.golang.mheap import PAGE, GoHeap, Layout, Span, settled
from dmods.runtimes.golang.sweeping import objects_of, unmarked
from tests.corekit import Memory, elf64_core, note, prstatus64

HEAP, RECORDS, BITS = 0xC000000000, 0x7F0000000000, 0x7F0000100000
LAYOUT = Layout(wide=2, bits=64, elemsize=104)
SWEEPGEN = 8
WAITS, CACHED, SWEPT = SWEEPGEN - 2, SWEEPGEN + 1, SWEEPGEN
SIZE, CLASS = 48, 5
OBJECTS = (PAGE - 256) // SIZE  # with the bits of pointers, and the marks inside


def heap(path: Path, sweepgens: list[int], inline: bool, marked: int, free: int) -> tuple[Words, GoHeap]:
    """Return spans of the generations. ``marked`` and ``free`` are bits of their objects."""
    pages, records = bytearray(PAGE * len(sweepgens)), bytearray(256 * len(sweepgens))
    found = GoHeap(LAYOUT, RECORDS, sweepgen=SWEEPGEN)
    for number, sweepgen in enumerate(sweepgens):
        start, record = HEAP + number * PAGE, RECORDS + number * 256
        if inline:
            end = (number + 1) * PAGE
            pages[end - 64 : end] = marked.to_bytes(63, "little") + bytes([CLASS << 1])
        struct.pack_into("<Q", records, number * 256 + LAYOUT.bits + 8, BITS)
        found.spans.append(Span(start, start + PAGE, SIZE, OBJECTS, free, CLASS, True, 0, sweepgen, record, 0))
    bits = bytes(64) if inline else marked.to_bytes(64, "little")
    memory = [Memory(HEAP, bytes(pages)), Memory(RECORDS, bytes(records)), Memory(BITS, bits)]
    path.write_bytes(elf64_core(memory, note(1, prstatus64(1, [0] * 27))))
    target = CoreFile(str(path))
    return Words(target.image(), 8), found


def dead_objects(words: Words, found: GoHeap) -> list[tuple[int, int]]:
    return [each for span, bits in unmarked(words, found) for each in objects_of(span, bits)]


@pytest.mark.parametrize("inline", [False, True])
def test_objects_without_a_mark_are_dead_where_the_span_waits(tmp_path: Path, inline: bool) -> None:
    every = (1 << OBJECTS) - 1
    alive, free = every & ~(1 << 3 | 1 << 70 | 1 << OBJECTS - 1), 1 << 70
    words, found = heap(tmp_path / "core", [WAITS, SWEPT, CACHED], inline, alive & ~free, free)
    dead = [HEAP + 3 * SIZE, HEAP + (OBJECTS - 1) * SIZE]
    dead += [address + 2 * PAGE for address in dead]
    assert dead_objects(words, found) == [(address, SIZE) for address in dead]


def test_marks_that_are_not_in_the_dump_condemn_nothing(tmp_path: Path) -> None:
    words, found = heap(tmp_path / "core", [WAITS], False, 0, 0)
    found.spans[0] = found.spans[0]._replace(record=BITS + 8)  # its word is 0
    assert dead_objects(words, found) == []


def test_a_span_that_is_being_swept_has_the_objects_with_a_mark(tmp_path: Path) -> None:
    """The sweeper has set the count of objects, and allocBits are still the old ones."""
    alive = (1 << 3) | (1 << 70)
    words, found = heap(tmp_path / "core", [SWEEPGEN - 1], False, alive, (1 << OBJECTS) - 1)
    data = bytearray((tmp_path / "core").read_bytes())
    record = data.rindex(struct.pack("<Q", BITS)) - LAYOUT.bits - 8
    struct.pack_into("<H", data, record + LAYOUT.elemsize - 8, 2)
    (tmp_path / "core").write_bytes(data)
    words = Words(CoreFile(str(tmp_path / "core")).image(), 8)
    (span,) = found.spans
    assert settled(words, LAYOUT, span).free == ((1 << OBJECTS) - 1) & ~alive
    unknown = span._replace(objects=60, free=1)
    assert settled(words, LAYOUT, unknown).free is None
    assert settled(words, LAYOUT, span._replace(free=((1 << OBJECTS) - 1) & ~3)).free == ((1 << OBJECTS) - 1) & ~3
