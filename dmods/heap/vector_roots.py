"""Blocks that only a vector register holds.

Copies leave addresses in these registers, and nothing says whether the program still wants them. So they are roots, as
general registers are, and a note names the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.leaks import Leaks
from dmods.heap.process_heap import ProcessHeap
from dmods.heap.signal_frames import integers_in_signal_frames
from dmods.process.vectors import lanes

_MOST_NAMED = 3


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
