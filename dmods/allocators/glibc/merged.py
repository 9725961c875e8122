"""Tell whether a free chunk is made of several: malloc merges free neighbours, and leaves their headers inside."""

from __future__ import annotations

from typing import Optional

from dmods.allocators.block import Block
from dmods.allocators.glibc.caches import list_holding
from dmods.allocators.glibc.state import State
from dmods.base.words import GRANULE

_FLAGS = 7  # PREV_INUSE, IS_MMAPPED, NON_MAIN_ARENA
_MMAPPED = 2
_MOST_STEPS = 16  # old chunks from one to the end
_MOST = 1 << 16  # bytes before an address in which an old header is looked for


def is_merged(heap: State, block: Block, address: int) -> Optional[bool]:
    """Return whether the free chunk was several chunks; None where it may have been.

    Chunks in a tcache or a fastbin are as they were freed. In any other free chunk, a header that leads exactly to its
    end remains from a merge (_int_free and unlink_chunk, malloc.c, write only the first header of the sum).
    """
    process = heap.process
    if list_holding(process.engine, heap.caches, block.address) is not None:
        return False
    return True if _old_header(heap, block, address) is not None else None


def _old_header(heap: State, block: Block, address: int) -> Optional[int]:
    """Return the last chunk before the address whose old header leads to the end of the free chunk, or None."""
    words, size = heap.process.words, heap.process.words.size
    end, first = block.end - size, block.address - 2 * size
    last = (address - first) // GRANULE * GRANULE + first
    start = max(first + GRANULE, last - _MOST // GRANULE * GRANULE)
    # The size field of a chunk is its second word.
    fields = words.many(start, (last - start) // size + 2) or () if last >= start else ()
    step = GRANULE // size
    for number in range((len(fields) - 2) // step * step, -1, -step):
        chunk = start + number * size
        if _leads_to(heap, chunk, fields[number + 1], end):
            return chunk
    return None


def _leads_to(heap: State, chunk: int, field: int, end: int) -> bool:
    """Return whether old headers lead from a chunk exactly to the end."""
    words, size = heap.process.words, heap.process.words.size
    for _step in range(_MOST_STEPS):
        length = field & ~_FLAGS
        if field & _MMAPPED or length < 4 * size or length % GRANULE or chunk + length > end:
            return False
        chunk += length
        if chunk == end:
            return True
        field = words.at(chunk + size) or 0
    return False
