"""Add up jemalloc's memory by arena and size class: the figures of its own malloc_stats_print()."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.allocators.jemalloc.find import ACTIVE, DIRTY, HUGE, MUZZY, RETAINED, Jemalloc
from dmods.base.dataclass import dataclass, field
from dmods.base.words import Words

if TYPE_CHECKING:
    from dmods.allocators.jemalloc.caching import Caches

_MOST_ARENAS = 4095  # MALLOCX_ARENA_LIMIT
_BATCH = 65536


@dataclass
class SizeClass:
    """The blocks of one size class in one arena. `allocated` includes those in tcaches (`cached`)."""

    arena: int
    size: int
    slabs: int  # 0 for large sizes
    regions: int
    allocated: int
    cached: int
    small: bool
    bytes: int  # of the allocated ones


@dataclass
class Usage:
    """An arena, in bytes. `tcaches` counts the tcaches that take blocks from it."""

    arena: int
    address: Optional[int] = None  # arena_t
    small: int = 0
    large: int = 0
    cached: int = 0
    active: int = 0
    dirty: int = 0
    muzzy: int = 0
    retained: int = 0
    extents: int = 0
    tcaches: int = 0
    classes: list[SizeClass] = field(default_factory=list)

    @property
    def allocated(self) -> int:
        """Return `stats.allocated`, which includes the blocks in tcaches."""
        return self.small + self.large

    @property
    def mapped(self) -> int:
        """Return the bytes that are active, dirty or muzzy."""
        return self.active + self.dirty + self.muzzy


def usages(words: Words, jemalloc: Jemalloc, caches: Caches) -> list[Usage]:
    """Return the figures of each arena that has extents, by number."""
    found: dict[int, Usage] = {}
    cached = _cached(jemalloc, caches)
    sizes = jemalloc.layout.sizes
    for arena, slab, index, extents, size, regions, live in jemalloc.extents.classes():
        usage = found.setdefault(arena, Usage(arena))
        small = index < jemalloc.layout.bins
        held = cached.get((arena, index), 0) if slab or not small else 0
        usage.classes.append(SizeClass(arena, sizes[index], extents if slab else 0, regions, live, held, small, size))
        usage.cached += held * sizes[index]
        if small:
            usage.small += size
        else:
            usage.large += size
    for arena, state, extents, size in jemalloc.extents.states():
        usage = found.setdefault(arena, Usage(arena))
        usage.extents += extents
        if state == ACTIVE:
            usage.active += size
        elif state == DIRTY:
            usage.dirty += size
        elif state == MUZZY:
            usage.muzzy += size
        elif state == RETAINED:
            usage.retained += size
    for arena, address in addresses(words, jemalloc, caches).items():
        if arena in found:
            found[arena].address = address
            found[arena].tcaches = sum(tcache.arena == address for tcache in caches.all)
    return [found[arena] for arena in sorted(found)]


def _cached(jemalloc: Jemalloc, caches: Caches) -> Counter[tuple[int, int]]:
    """Return how many blocks of each (arena, size class) are in tcaches. A block stays in its arena."""
    wrong = {address for _tcache, _index, address in caches.wrong}
    found: Counter[tuple[int, int]] = Counter()
    for tcache in caches.all:
        for index, blocks in tcache.cached.items():
            for address in blocks:
                extent = jemalloc.extents.at(address) if address not in wrong else None
                if extent is not None:
                    found[extent[3], index] += 1
    return found


def addresses(words: Words, jemalloc: Jemalloc, caches: Caches) -> dict[int, int]:
    """Return arena number -> arena_t of the arenas that a tcache knows, and through them of all in `arenas[]`.

    An arena's own structure lies in the same block of the base allocator as the records of its extents.
    """
    homes = _homes(jemalloc)
    known: dict[int, int] = {}
    for tcache in caches.all:
        numbers = homes.get(tcache.arena // HUGE)
        if numbers is not None and len(numbers) == 1:
            known[next(iter(numbers))] = tcache.arena
    return _of_table(words, jemalloc, known) if known else known


def ranges(jemalloc: Jemalloc, arena: int) -> Iterator[tuple[int, int]]:
    """Yield where the blocks of an arena lie, by address."""
    at, page = 0, jemalloc.layout.page_size
    while batch := jemalloc.extents.following(at, _BATCH):
        for _edata, address, size, of, _state, size_class, _slab in batch:
            if of == arena and size_class is not None:
                yield address, address // page * page + size
        at = batch[-1][1] // 4096 * 4096 + 1


def unused(jemalloc: Jemalloc) -> list[tuple[int, int]]:
    """Return the extents that are not in use, by address."""
    at, found = 0, []
    while batch := jemalloc.extents.following(at, _BATCH):
        found += [(start, start + size) for _edata, start, size, _arena, state, *_ in batch if state != ACTIVE]
        at = batch[-1][1] // 4096 * 4096 + 1
    return found


def _homes(jemalloc: Jemalloc) -> dict[int, set[int]]:
    """Return stretch of 2 MiB -> the arenas whose records of extents lie in it."""
    homes: dict[int, set[int]] = {}
    at = 0
    while batch := jemalloc.extents.following(at, _BATCH):
        for edata, _address, _size, arena, *_ in batch:
            homes.setdefault(edata // HUGE, set()).add(arena)
        at = batch[-1][1] // 4096 * 4096 + 1
    return homes


def _of_table(words: Words, jemalloc: Jemalloc, known: dict[int, int]) -> dict[int, int]:
    """Return the arenas in `arenas[]` where it is found: an array of pointers with all known arenas."""
    number, address = min(known.items())
    for start, end in jemalloc.data():
        values = words.many(-(-start // 8) * 8, (end - start) // 8) or ()
        for index, value in enumerate(values):
            first = index - number
            if value != address or first < 0:
                continue
            table = values[first : first + _MOST_ARENAS]
            if all(n < len(table) and table[n] == at for n, at in known.items()):
                return {**known, **_leading(table, jemalloc)}
    return known


def _leading(table: Sequence[int], jemalloc: Jemalloc) -> dict[int, int]:
    found = {}
    for number, address in enumerate(table):
        if address == 0 or address not in jemalloc.base:
            break
        found[number] = address
    return found


def together(classes: Iterable[SizeClass]) -> Iterator[SizeClass]:
    """Yield the size classes of all arenas together, by size."""
    sums: dict[tuple[int, bool], SizeClass] = {}
    for each in classes:
        key = (each.size, each.slabs > 0)
        kept = sums.setdefault(key, SizeClass(-1, each.size, 0, 0, 0, 0, each.small, 0))
        kept.slabs += each.slabs
        kept.regions += each.regions
        kept.allocated += each.allocated
        kept.cached += each.cached
        kept.bytes += each.bytes
    return (sums[key] for key in sorted(sums))
