"""Find contradictions in the records of jemalloc: extents and the tree that leads to them, bitmaps, tcaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dmods.allocators.jemalloc.find import FAULTS
from dmods.allocators.jemalloc.heap import first_arena
from dmods.heap.integrity.contradiction import Contradiction
from dmods.heap.process_heap import ProcessHeap


class JemallocContradiction(NamedTuple):
    """A contradiction in one jemalloc of the process: the one with the number ``order``."""

    order: int
    contradiction: Contradiction


def contradictions(heap: ProcessHeap) -> Iterator[JemallocContradiction]:
    """Yield those of the extents first (as many as the engine describes), then those of the tcaches."""
    for order, (one, caches) in enumerate(zip(heap.jemallocs, heap.jemalloc_caches)):
        for fault, record, page in one.extents.faults:
            if heap.is_missing(record):
                continue  # what is not there is not damaged
            extent = one.extents.at(page)
            arena = first_arena(order) + extent[3] if extent is not None else None
            yield JemallocContradiction(order, Contradiction(arena, f"extent of {page:#x}", record, FAULTS[fault]))
        for tcache in caches.all:
            for problem in tcache.problems:
                yield JemallocContradiction(order, Contradiction(None, "tcache", tcache.address, problem))
        for tcache, size_class, address in caches.wrong:
            size = one.layout.sizes[size_class]
            text = f"its bin of {size} bytes holds {address:#x}, where no block in use begins: freed twice, or damaged"
            yield JemallocContradiction(order, Contradiction(None, "tcache", tcache.address, text))
