"""The readers of allocators other than glibc's malloc and jemalloc. Each is in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmods.allocators.golang.heap import find_go
from dmods.allocators.mimalloc.find import find_mimallocs
from dmods.allocators.musl.find import find as find_musl
from dmods.allocators.pymalloc.heap import find_pymalloc
from dmods.allocators.tcmalloc.find import find_tcmallocs
from dmods.allocators.walked import Found, Walked
from dmods.base.ranges import Ranges
from dmods.target import Target

#: The readers. Each looks at a target, and at the memory that an allocator found before owns: it holds no other heap.
READERS: Sequence[Callable[[Target, Ranges], Found]] = (
    find_musl,
    find_mimallocs,
    find_tcmallocs,
    find_pymalloc,
    find_go,
)


def find_walked(target: Target, owned: Ranges) -> Found:
    """Return the heaps of all readers, and their refusals. ``owned`` is the memory of glibc's malloc and jemalloc."""
    heaps: list[Walked] = []
    refusals: list[str] = []
    for read in READERS:
        found = read(target, owned)
        heaps.extend(found.heaps)
        refusals.extend(found.refusals)
        owned = Ranges(sorted([*owned, *(part for heap in found.heaps for part in heap.owned)]))
    return Found(heaps, refusals)
