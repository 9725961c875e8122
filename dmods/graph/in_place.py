"""Which surviving blocks hold other content in a later core: their memory was used again, or filled anew in place."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.process_heap import ProcessHeap

_IN_USE = [LIVE, DIRECT, INDIRECT]
_PLACES = 32  # parts of the heap from which blocks are taken
_BATCH = 512  # blocks of a part
_MOST_BYTES = 128  # of a block that are compared


def changed_in_place(old: ProcessHeap, new: ProcessHeap) -> tuple[int, int]:
    """Return how many surviving blocks were compared, and in how many most words have changed.

    A block that is linked elsewhere, or counts, changes a word or two. Words that are 0 in both cores do not count.
    """
    compared = other = 0
    word = old.words.size
    for address, size in _sampled(old):
        block = new.block_at(address)
        if block is None or (block.address, block.size) != (address, size) or block.state not in _IN_USE:
            continue
        length = min(size, _MOST_BYTES) // word * word
        before, after = old.target.image().read(address, length), new.target.image().read(address, length)
        if len(before) != length or len(after) != length:
            continue
        pairs = [(before[at : at + word], after[at : at + word]) for at in range(0, length, word)]
        told = [(one, two) for one, two in pairs if any(one) or any(two)]
        if not told:
            continue
        compared += 1
        other += 2 * sum(one != two for one, two in told) > len(told)
    return compared, other


def _sampled(heap: ProcessHeap) -> Iterator[tuple[int, int]]:
    """Yield (address, size) of blocks in use: all of a small heap, else those of parts that lie evenly in it."""
    owned = list(heap.owned)
    step = max(1, sum(end - start for start, end in owned) // _PLACES)
    seen = 0
    for start, end in owned:
        for place in range(start, end, step):
            for row in heap.index.blocks(_IN_USE, max(place, seen), _BATCH):
                if row.address >= end:
                    break
                seen = row.address + 1
                yield row.address, row.size
