"""Helpers for the blocks and arenas of a heap that several commands use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.numbers import arena_name
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN
from dmods.heap.heap import ProcessHeap

__all__ = ["EVERYWHERE", "STATES", "addresses", "arena_name", "arena_of", "runs_of"]

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
        while batch := heap.marks.engine.addresses(list(states), at, end, _BATCH):
            yield from batch
            at = batch[-1] + 1


def arena_of(heap: ProcessHeap, address: int) -> Optional[int]:
    """Return the number of the arena whose structure or memory contains the address, or None.

    All memory of an allocator with one arena (tcmalloc, say) belongs to that arena.
    """
    found = (one.arena_of(address) for one in heap.heaps)
    return next((number for number in found if number is not None), None)


def runs_of(heap: ProcessHeap, number: int) -> list[tuple[int, int]]:
    """Return the memory that holds the blocks of an arena."""
    return sorted(part for one in heap.heaps if one.has_arena(number) for part in one.memory_of(number))
