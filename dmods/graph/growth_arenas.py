"""Keys of arenas that mean the same in several cores. The numbers of arenas do not: each allocator says what does."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.allocators.protocol import Heap
from dmods.graph.growth.keys import Labels
from dmods.heap.process_heap import ProcessHeap


def arena_keys(heaps: Sequence[ProcessHeap], labels: Labels, aligned: bool) -> list[dict[int, int]]:
    """Return for each heap the key of each arena, by its number there. ``aligned``: addresses may be compared."""
    return [
        {
            arena.number: labels.key(arena.identity, arena.name)
            for one in heap.heaps
            for arena in one.arena_keys(_alike(heaps, one), aligned)
        }
        for heap in heaps
    ]


def _alike(heaps: Sequence[ProcessHeap], wanted: Heap) -> list[list[Heap]]:
    """Return the heaps of the same allocator in each core."""
    return [[one for one in heap.heaps if one.allocator == wanted.allocator] for heap in heaps]
