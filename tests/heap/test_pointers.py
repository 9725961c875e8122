"""The engine's search for pointers, compared with a loop over every word, and in a heap with one over all of memory."""

from __future__ import annotations

import random
import struct

import pytest

from dmods._engine import Image, find_pointers
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from dmods.heap.roots.live_memory import readable_ranges
from fixtures.cores import take


@pytest.mark.parametrize("word", [4, 8])
def test_many_places_in_one_pass(word: int) -> None:
    dice = random.Random(1)
    base, count = 0x10000, 300_000  # more than the engine reads at a time
    values = [dice.randrange(1000) for _ in range(count)]
    image = Image([], [], [(base, struct.pack(f"<{count}{'Q' if word == 8 else 'I'}", *values))])
    wanted = [(0, 1), (10, 12), (12, 15), (900, 1000), (5000, 6000)]
    ranges = [(base, base + word * 1000), (base + word * 2000, base + word * count)]
    inside = [index for index in range(count) if not 1000 <= index < 2000]
    for most in (0, 1, 7, count):
        expected = [[base + word * i for i in inside if low <= values[i] < high][:most] for low, high in wanted]
        assert find_pointers(image, ranges, word, wanted, most) == expected
    assert find_pointers(image, ranges, word, [], 7) == []


def test_places_in_disorder_are_refused() -> None:
    image = Image([], [], [(0x1000, bytes(64))])
    for wanted in ([(5, 6), (1, 2)], [(1, 5), (4, 6)]):
        with pytest.raises(ValueError, match="overlap"):
            find_pointers(image, [(0x1000, 0x1040)], 8, wanted, 1)


def test_what_the_progress_raises_ends_it() -> None:
    """Ctrl-C does the same."""
    image = Image([], [], [(0, bytes(64 << 20))])

    def told(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # 64 GB; the search calls the progress twenty times a second
        find_pointers(image, [(0, 64 << 20)] * 1000, 8, [(1, 2)], 1, told)


@pytest.mark.quick("graph")
@pytest.mark.parametrize("name", ["graph", "shapes", "arenas"])
def test_the_tables_know_the_pointers_that_memory_has(name: str) -> None:
    """Chunks are not read again. Among what points to a block are free blocks, and memory that nothing reads."""
    target = CoreFile(str(take(name).core))
    heap = find_heap(target)
    ranges = readable_ranges(target, heap.index.mappings)
    blocks = sorted((block.address, block.end) for block in heap.blocks(LIVE, FREE, DIRECT, INDIRECT))
    image, word = target.image(), heap.words.size
    every = find_pointers(image, ranges, word, blocks, 1 << 20)
    assert heap.index.engine.pointers(ranges, list(heap.roots.dead), blocks, 1 << 20) == every
    inside = [at for places in every for at in places if at in heap.owned]
    assert len(inside) > len(blocks) // 8
    # Only some of them, exact addresses, nothing at all, and a part of memory.
    assert heap.index.engine.pointers(ranges, [], blocks, 1) == find_pointers(image, ranges, word, blocks, 1)
    starts = [(start, start + 1) for start, _end in blocks]
    assert heap.index.engine.pointers(ranges, [], starts, 9) == find_pointers(image, ranges, word, starts, 9)
    assert heap.index.engine.pointers(ranges, [], blocks, 0) == [[] for _block in blocks]
    start, end = min(heap.owned)
    part = [(start + 0x1008, (start + end) // 2)]
    assert heap.index.engine.pointers(part, [], blocks, 99) == find_pointers(image, part, word, blocks, 99)
    with pytest.raises(ValueError, match="overlap"):
        heap.index.engine.pointers(ranges, [], blocks[::-1], 1)
