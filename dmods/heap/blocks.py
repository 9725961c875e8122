"""Helpers for the blocks and arenas of a heap that several commands use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.glibc.runs import MMAPPED
from dmods.allocators.jemalloc import heap as jemalloc
from dmods.allocators.jemalloc import stats
from dmods.allocators.walked import walked_name
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN
from dmods.heap.process_heap import ProcessHeap

STATES = {
    LIVE: "live",
    FREE: "free",
    DIRECT: "leaked directly",
    INDIRECT: "leaked indirectly",
    OWN: "the allocator's own",
}

EVERYWHERE = (0, (1 << 64) - 1)
_BATCH = 65536


def addresses(heap: ProcessHeap, ranges: Sequence[tuple[int, int]], *states: int) -> Iterator[int]:
    """Yield the addresses of the blocks in the ranges whose state is one of these."""
    for start, end in ranges:
        at = start
        while batch := heap.index.addresses(list(states), at, end, _BATCH):
            yield from batch
            at = batch[-1] + 1


def arena_of(heap: ProcessHeap, address: int) -> Optional[int]:
    """Return the number of the arena whose ``malloc_state`` or memory contains the address, or None.

    All memory of an allocator with one arena (tcmalloc, say) belongs to that arena.
    """
    for number, arena in enumerate(heap.arenas):
        if arena.address <= address < arena.end:
            return number
        if any(info.start <= address < info.start + info.size for info in arena.heaps):
            return number
    runs = (run for run in heap.layout.runs if run[2] != MMAPPED)
    found = next((number for start, end, _kind, number, _usable in runs if start <= address < end), None)
    if found is None:
        found = _jemalloc_arena_of(heap, address)
    if found is not None:
        return found
    inside = (one for one in heap.walked if any(start <= address < end for start, end in one.owned))
    return next((one.arena for one in inside), None)


def _jemalloc_arena_of(heap: ProcessHeap, address: int) -> Optional[int]:
    """Return the number of the jemalloc arena whose extent or ``arena_t`` contains the address, or None."""
    for order, (one, caches) in enumerate(zip(heap.jemallocs, heap.jemalloc_caches)):
        extent = one.extents.at(address)
        if extent is not None:
            return jemalloc.first_arena(order) + extent[3]
        for number, arena in stats.addresses(heap.words, one, caches).items() if address in one.base else ():
            if arena == address:
                return jemalloc.first_arena(order) + number
    return None


def runs_of(heap: ProcessHeap, number: int) -> list[tuple[int, int]]:
    """Return the memory that holds the chunks (or extents) of an arena."""
    if jemalloc.is_arena(number):
        order, arena = jemalloc.split(number)
        return list(stats.ranges(heap.jemallocs[order], arena))
    if walked_name(number) is not None:
        return sorted(part for one in heap.walked if one.arena == number for part in one.owned)
    return sorted((start, end) for start, end, _kind, arena, _usable in heap.layout.runs if arena == number)


def arena_name(number: Optional[int]) -> str:
    """Return the name of an arena: "main", the number of a thread arena, "mmapped" for None, or "je0" for jemalloc.

    If a process has several mallocs, only the main arena of the first is "main". All blocks of another
    allocator are in one arena with its name.
    """
    if number is None:
        return "mmapped"
    if jemalloc.is_arena(number):
        return jemalloc.arena_name(number)
    return walked_name(number) or ("main" if number == 0 else str(number))
