"""The objects in KFENCE's pool among the slab objects: how the engine knows them, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.dump.cached_memory import Pages
from drgnext.kernel.pages.kfence import (
    ALLOCATED,
    FREED,
    Guarded,
    GuardedTrack,
    Overwritten,
    guarded_pool,
    guarded_track,
    overwritten,
)
from drgnext.kernel.slabs.caches import SlabCacheInfo

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import SlabCache, SlabsDescription
    from drgnext.kernel.pages.memmap import PageArray


class GuardedObjects:
    """The objects in KFENCE's pool. A kernel without a pool has no such objects.

    The engine gets a cache of one object for each: its slot is a page. ``numbered`` are all caches by the engine's
    numbers, those behind the kernel's own.
    """

    def __init__(self, prog: Program, pages: PageArray, caches: list[SlabCacheInfo]) -> None:
        self._prog = prog
        self._pages = pages
        self._memory = Pages(pages.read)
        self._page = 1 << pages.layout["page_bits"]
        try:
            self.pool = guarded_pool(prog, self._memory, self._page)
        except LookupError:  # the pages' own note says so
            self.pool = None
        known = {cache.address: cache for cache in caches}
        self.numbered = list(caches)
        for one in self.pool.objects if self.pool is not None else ():
            cache = known.get(one.cache)
            name = cache.name if cache is not None else f"(destroyed cache {one.cache:#x})"
            flags = cache.flags if cache is not None else frozenset()
            made = SlabCacheInfo(len(self.numbered), one.cache, name, self._page, one.size, flags, 0, 0, 1, one)
            self.numbered.append(made)
        self._own = len(caches)

    @property
    def objects(self) -> Iterator[SlabCacheInfo]:
        """Return the objects, each with its cache."""
        return iter(self.numbered[self._own :])

    @property
    def in_use(self) -> int:
        """Return the number of allocated objects."""
        return sum(one.guarded is not None and one.guarded.state == ALLOCATED for one in self.objects)

    def holds(self, address: int) -> bool:
        """Return whether an address lies in the pool."""
        return self.pool is not None and self.pool.start <= address < self.pool.end

    def recorded_at(self, address: int) -> Optional[Guarded]:
        """Return the object in whose record an address lies, or None."""
        size = self.pool.record if self.pool is not None else 0
        found = (one.guarded for one in self.objects if one.guarded is not None)
        return next((one for one in found if one.metadata <= address < one.metadata + size), None)

    def describe(self, description: SlabsDescription) -> None:
        """Add the objects to the engine's description, and the words of KFENCE's own that hold no object."""
        if self.pool is None:
            return
        for one in self.objects:
            assert one.guarded is not None
            physical = (one.guarded.address - description["direct_map"]) & ((1 << 64) - 1)
            description["caches"].append(_alone(one.guarded, self._page))
            description["guarded"].append((physical // self._page, one.number, one.guarded.state == FREED))
        found = (self._pages.translate(word) for word in self.pool.words)
        description["ignored"] += [physical for physical in found if physical is not None]

    def track(self, one: Guarded, freed: bool) -> Optional[GuardedTrack]:
        """Return who allocated, or freed, an object. None where that is not known."""
        if freed and one.state != FREED:
            return None
        return guarded_track(self._prog, self._memory, one, freed)

    def overwritten(self) -> Iterator[tuple[SlabCacheInfo, Overwritten]]:
        """Yield what was written beside allocated objects, in their pages. KFENCE looks when they are freed."""
        for one in self.objects:
            if one.guarded is not None and one.guarded.state == ALLOCATED:
                data = self._pages.read(one.guarded.address & -self._page, self._page)
                if len(data) == self._page:
                    yield from ((one, each) for each in overwritten(one.guarded, data))


def _alone(one: Guarded, page: int) -> SlabCache:
    """Return the description of a cache of one object that has a page. It has neither lists nor records."""
    return {
        "address": one.metadata,
        "size": page,
        "object_size": one.size,
        "inuse": one.size,
        "offset": 0,
        "red_left": one.address % page,
        "scanned": one.size,
        "random": None,
        "cpu_slab": 0,
        "cpu_sheaves": 0,
        "barns": [],
        "track": 0,
        "red_zone": False,
        "poison": False,
        "padded": False,
        "rest": False,
    }
