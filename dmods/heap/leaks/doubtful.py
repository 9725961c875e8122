"""Blocks of which nothing proves that they leaked, nor that they did not.

`findleaks --doubtful` lists those that count neither as live nor as leaked. Others count as live because only a vector
register holds them. Copies leave addresses in these registers, and nothing says whether the program still wants them.
So they are roots, as general registers are, and a note names the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.block import Block
from dmods.heap.heap import ProcessHeap
from dmods.heap.index import LOST_CACHE
from dmods.heap.leak_totals import Leaks
from dmods.heap.marks import BESIDE_ENDS, BY_ENDS
from dmods.heap.roots.signal_frames import integers_in_signal_frames
from dmods.process.vectors import lanes

_MOST_NAMED = 3
_NOTES = {
    LOST_CACHE: "were in caches of threads that a fork did not copy: each is free, or the thread had taken it out and "
    "leaked it",
    BY_ENDS: "are held only by end pointers: words that are the end of the block before, as containers keep it, and by "
    "chance the beginning of this one",
    BESIDE_ENDS: "are held only by such blocks",
}


def doubtful_blocks(heap: ProcessHeap) -> Iterator[tuple[Block, str]]:
    """Yield the blocks and what is uncertain about each, by address. The leaks are known before."""
    for address, why in sorted(heap.marks.doubtful.items()):
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


def vector_notes(heap: ProcessHeap, leaks: Leaks) -> Iterator[str]:
    """Yield a note if vector registers hold blocks that nothing else holds."""
    if not leaks.by_vectors:
        return
    shown = leaks.by_vectors[:_MOST_NAMED]
    names = _names(heap, {value for value, _count in shown})
    which = ", ".join(f"{value:#x} ({names.get(value, 'at an unaligned byte')})" for value, _count in shown)
    rest = ", ..." if len(leaks.by_vectors) > len(shown) else ""
    count = sum(count for _value, count in leaks.by_vectors)
    blocks = "1 block is" if count == 1 else f"{count} blocks are"
    yield f"{blocks} held by vector registers alone, where a copy may have left the address: {which}{rest}"


def _names(heap: ProcessHeap, values: set[int]) -> dict[int, str]:
    """Return the first register that holds each value."""
    found: dict[int, str] = {}
    for thread in heap.target.threads():
        for lane in lanes(thread.vectors or {}, heap.words.size):
            if lane.value in values:
                found.setdefault(lane.value, f"thread {thread.tid} {lane.name}")
    for tid, lane in integers_in_signal_frames(heap.target):
        if lane.value in values:
            found.setdefault(lane.value, f"thread {tid} {lane.name} in a signal frame")
    return found
