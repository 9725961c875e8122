"""Where jemalloc's records contradict each other: extents and the tree that leads to them, bitmaps, tcaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dmods.glibc.integrity import Contradiction
from dmods.jemalloc.find import FAULTS
from dmods.jemalloc.heap import first_arena

if TYPE_CHECKING:
    from dmods.heap import ProcessHeap


class Found(NamedTuple):
    """``order``: of which of the process's jemallocs."""

    order: int
    contradiction: Contradiction


def contradictions(heap: ProcessHeap) -> Iterator[Found]:
    """Those of the extents first (not more than the engine describes), then those of the tcaches."""
    for order, (one, caches) in enumerate(zip(heap.jemallocs, heap.jemalloc_caches)):
        for fault, record, page in one.extents.faults:
            extent = one.extents.at(page)
            arena = first_arena(order) + extent[3] if extent is not None else None
            yield Found(order, Contradiction(arena, f"extent of {page:#x}", record, FAULTS[fault]))
        for tcache in caches.all:
            for problem in tcache.problems:
                yield Found(order, Contradiction(None, "tcache", tcache.address, problem))
        for tcache, size_class, address in caches.wrong:
            size = one.layout.sizes[size_class]
            text = f"its bin of {size} bytes holds {address:#x}, where no block in use begins: freed twice, or damaged"
            yield Found(order, Contradiction(None, "tcache", tcache.address, text))
