"""Keys of arenas that mean the same in several cores.

The numbers of arenas do not: glibc puts a new arena second in its list, and a jemalloc that was loaded between two
cores may come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from dmods.allocators.glibc.runs import NO_ARENA
from dmods.allocators.jemalloc.find import Jemalloc
from dmods.allocators.jemalloc.heap import first_arena
from dmods.graph.growth_keys import Labels
from dmods.heap.blocks import arena_name
from dmods.heap.process_heap import ProcessHeap


def arena_keys(heaps: Sequence[ProcessHeap], labels: Labels, aligned: bool) -> list[dict[int, int]]:
    """Return for each heap the key of each arena, by its number there. ``aligned``: addresses may be compared."""
    jemallocs = _named(heaps, aligned)
    mains = [heap.arenas[0].address for heap in heaps if heap.arenas]
    return [dict(_keys(heap, labels, mains[-1:] if aligned else mains, aligned, jemallocs)) for heap in heaps]


def _keys(
    heap: ProcessHeap, labels: Labels, mains: Sequence[int], aligned: bool, jemallocs: dict[Hashable, str]
) -> Iterator[tuple[int, int]]:
    yield NO_ARENA, labels.key("mmapped", arena_name(None))
    for number, arena in enumerate(heap.arenas):
        if number == 0 and arena.address in mains:
            yield number, labels.key("main", arena_name(0))
        elif aligned:
            yield number, labels.key(("arena", arena.address), f"arena at {arena.address:#x}")
        else:
            yield number, labels.key("thread arenas", "thread arenas")
    for order, one in enumerate(heap.jemallocs):
        same = _identity(one, order, aligned)
        for number in {arena for arena, *_ in one.extents.classes()}:
            # Where all cores have the same single jemalloc, its arenas have the names that other commands give them.
            name = f"je{number}" if len(jemallocs) == 1 else f"arena {number} of {jemallocs[same]}"
            yield first_arena(order) + number, labels.key(("jemalloc", same, number), name)
    for walked in heap.walked:
        yield walked.arena, labels.key(("walked", walked.name), walked.name)


def _identity(one: Jemalloc, order: int, aligned: bool) -> Hashable:
    if aligned:
        return one.root
    return (one.module.build_id or one.module.path) if one.module is not None else order


def _named(heaps: Sequence[ProcessHeap], aligned: bool) -> dict[Hashable, str]:
    """Return the name of every jemalloc that one of the cores has, by what tells it apart."""
    found = {_identity(one, order, aligned): one for heap in heaps for order, one in enumerate(heap.jemallocs)}
    alike = Counter(one.name for one in found.values())
    return {same: one.name if alike[one.name] == 1 else f"{one.name} at {one.root:#x}" for same, one in found.items()}
