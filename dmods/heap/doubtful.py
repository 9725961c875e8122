"""Blocks of which nothing proves that they leaked, nor that they did not: `findleaks --doubtful` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.block import Block
from dmods.heap.process_heap import BESIDE_ENDS, BY_ENDS, LOST_CACHE, ProcessHeap

_NOTES = {
    LOST_CACHE: "were in caches of threads that a fork did not copy: each is free, or the thread had taken it out and "
    "leaked it",
    BY_ENDS: "are held only by end pointers: words that are the end of the block before, as containers keep it, and by "
    "chance the beginning of this one",
    BESIDE_ENDS: "are held only by such blocks",
}


def doubtful_blocks(heap: ProcessHeap) -> Iterator[tuple[Block, str]]:
    """Yield the blocks and what is uncertain about each, by address. The leaks are known before."""
    for address, why in sorted(heap.doubtful.items()):
        block = heap.block_at(address)
        if block is not None:
            yield block, why


def doubtful_notes(heap: ProcessHeap) -> Iterator[str]:
    """Yield a note for each kind of doubt, with how many blocks and bytes it concerns."""
    sums: dict[str, list[int]] = {}
    for block, why in doubtful_blocks(heap):
        count = sums.setdefault(why, [0, 0])
        count[0] += 1
        count[1] += block.size
    for why, (blocks, size) in sums.items():
        yield f"{blocks} blocks ({size} bytes) {_NOTES[why]} (--doubtful lists them)"
