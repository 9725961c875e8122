"""The heap of a jemalloc, as the rest of dmods sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Optional

from dmods.allocators.block import Block
from dmods.allocators.jemalloc import stats
from dmods.allocators.jemalloc.caching import Caches
from dmods.allocators.jemalloc.false_words import leaf_keys, noted_breaks
from dmods.allocators.jemalloc.find import FAULTS, STATES, Jemalloc
from dmods.allocators.jemalloc.numbers import NAME, arena_name, first_arena, split
from dmods.allocators.jemalloc.orphans import Pattern, find_orphans
from dmods.allocators.jemalloc.report import report
from dmods.allocators.protocol import Building, Describer, Heap, Marked
from dmods.allocators.search import Search
from dmods.allocators.vocabulary import (
    ADVICE_BYTES,
    ADVICE_SHARE,
    ArenaKey,
    ArenaRow,
    Checked,
    Contradiction,
    Lost,
    Part,
    Place,
    SomeExtents,
    Statistics,
    Walk,
    contradiction,
    unused,
)
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.base.sizes import human_size
from dmods.finding import Finding


@dataclass
class JemallocHeap(Heap):
    """One jemalloc of the process: the one at the place ``order`` among them, from 0 on."""

    found: Optional[Jemalloc] = None
    order: int = 0
    read: Optional[Caches] = None

    @property
    def one(self) -> Jemalloc:
        """Return what was found of it."""
        assert self.found is not None
        return self.found

    @property
    def caches(self) -> Caches:
        """Return its tcaches, once its blocks are released."""
        assert self.read is not None
        return self.read

    @property
    def allocator(self) -> str:
        """Return the name of all jemallocs."""
        return NAME

    @property
    def equal_sizes(self) -> bool:
        """Return True: a size class has one size."""
        return True

    @property
    def bytes(self) -> int:
        """Return the bytes of the extents in use."""
        return sum(size for *_, size, _slots, _live in self.one.extents.classes())

    def walks(self) -> list[Walk]:
        """Return all extents."""
        return [SomeExtents(self.one.extents, first_arena(self.order))]

    def homes(self) -> list[int]:
        """Return the root of the radix tree. It is a variable of the module."""
        return [self.one.root]

    # -- its part of the heap -------------------------------------------------------------------------------------

    def release(self, building: Building) -> None:
        """Set the blocks in tcaches free, and make the arrays of tcaches jemalloc's own."""
        self.read = Caches(building.words, building.target, self.one, building.thread_pointers, building.engine)

    def damage_notes(self) -> list[str]:
        """Return what is wrong with tcaches."""
        return self.caches.notes(self.one)

    def silent(self) -> Ranges:
        """Return the thread-local memory of the tcaches. What it points to is not held by it."""
        return self.caches.own_memory(self.one)

    def false_words(self, search: Search) -> Iterator[tuple[int, int]]:
        """Yield notes of the program's break, and keys of the radix tree."""
        yield from noted_breaks(self.one, search)
        yield from leaf_keys(self.one, search)

    def may_have_lost(self) -> bool:
        """Return whether a block of the program has the size of a tcache's arrays. Few processes have such a block."""
        sizes: dict[int, set[int]] = {}
        for pattern in self._patterns():
            sizes.setdefault(pattern.arena, set()).add(pattern.size)
        index = self.process.engine
        return any(size in wanted and used for arena, wanted in sizes.items() for size, used, *_ in index.sizes(arena))

    def lost(self, marks: Marked) -> Optional[Lost]:
        """Return what tcaches held that are gone, in the child of a fork."""
        orphans = find_orphans(self.process.words, marks, self._patterns())
        return Lost(orphans.doubtful, orphans.arrays + orphans.tickers) if orphans.arrays else None

    def _patterns(self) -> list[Pattern]:
        return self.caches.patterns(self.process.words, self.one, self.process.engine)

    # -- arenas ---------------------------------------------------------------------------------------------------

    @property
    def has_arenas(self) -> bool:
        """Return True."""
        return True

    def has_arena(self, number: Optional[int]) -> bool:
        """Return whether the number is in this jemalloc's range."""
        return number is not None and split(number)[0] == self.order

    def arena_of(self, address: int) -> Optional[int]:
        """Return the number of the arena whose extent or ``arena_t`` contains the address, or None."""
        extent = self.one.extents.at(address)
        if extent is not None:
            return first_arena(self.order) + extent[3]
        if address in self.one.base:
            for number, arena in stats.addresses(self.process.words, self.one, self.caches).items():
                if arena == address:
                    return first_arena(self.order) + number
        return None

    def memory_of(self, number: int) -> list[tuple[int, int]]:
        """Return the extents of an arena."""
        return list(stats.ranges(self.one, split(number)[1]))

    def arena_numbers(self) -> dict[str, int]:
        """Return the numbers of the arenas that have extents."""
        numbers = sorted({arena for arena, *_ in self.one.extents.states()})
        return {arena_name(first_arena(self.order) + each): first_arena(self.order) + each for each in numbers}

    def arena_rows(self) -> Iterator[ArenaRow]:
        """Yield the arenas whose ``arena_t`` is known."""
        for usage in self._usages():
            if usage.address is not None:
                name = arena_name(first_arena(self.order) + usage.arena)
                yield ArenaRow(usage.address, name, None, usage.mapped, usage.tcaches)

    def arena_keys(self, cores: Sequence[Sequence[Heap]], aligned: bool) -> Iterator[ArenaKey]:
        """Yield the arenas by their number and the module of the jemalloc: one that was loaded late may come first."""
        own = [one for core in cores for one in core if isinstance(one, JemallocHeap)]
        all_ = {one._identity(aligned): one for one in own}
        alike = Counter(one.name for one in all_.values())
        same = self._identity(aligned)
        one = all_[same]
        whose = one.name if alike[one.name] == 1 else f"{one.name} at {one.one.root:#x}"
        for number in {arena for arena, *_ in self.one.extents.classes()}:
            # Where all cores have the same single jemalloc, its arenas have the names that other commands give them.
            name = f"je{number}" if len(all_) == 1 else f"arena {number} of {whose}"
            yield ArenaKey(first_arena(self.order) + number, ("jemalloc", same, number), name)

    def _identity(self, aligned: bool) -> Hashable:
        module = self.one.module
        if aligned:
            return self.one.root
        return (module.build_id or module.path) if module is not None else self.order

    # -- addresses ------------------------------------------------------------------------------------------------

    def place(self, describer: Describer, address: int) -> Optional[Place]:
        """Return memory that is in no block: the rest of a slab, free pages, or jemalloc's own records."""
        del describer
        extent = self.one.extents.at(address)
        if extent is not None:
            _edata, start, size, arena, state, _size_class, slab = extent
            base = start // self.one.layout.page_size * self.one.layout.page_size
            what = "a slab" if slab else "an extent"
            used = STATES[state]
            name = f"{what} of arena {arena_name(first_arena(self.order) + arena)}"
            text = f"in {name}, {base:#x}-{base + size:#x}, {used}, but in no block"
            return Place("slack", text, f"{name}, {used}")
        if address in self.one.base:
            text = f"in memory that {self.name} keeps for its own records"
            return Place("slack", text, "jemalloc's own records")
        return None

    def holding(self, describer: Describer, block: Block) -> str:
        """Return the tcache or the slab that has the free block."""
        tcache = self.caches.holder(block.address)
        if tcache is not None:
            whose = describer.thread_named(tcache.tid) if tcache.tid is not None else "a thread that has exited"
            return f"in the tcache of {whose}"
        return f"in its slab, of arena {arena_name(block.arena or 0)}"

    @property
    def single(self) -> Optional[str]:
        """Return what a block has that is in no slab."""
        return "an extent"

    def links_in_free(self, block: Block) -> int:
        """Return 0: jemalloc writes nothing into free blocks."""
        del block
        return 0

    # -- figures --------------------------------------------------------------------------------------------------

    def free_memory(self) -> list[tuple[int, int]]:
        """Return the extents that are not in use: dirty, muzzy and retained ones."""
        return stats.unused(self.one)

    def counts(self) -> tuple[int, int]:
        """Return how many arenas have extents, and how many tcaches there are."""
        return len(self.arena_numbers()), len(self.caches.all)

    def _usages(self) -> list[stats.Usage]:
        return stats.usages(self.process.words, self.one, self.caches)

    def report(self, every_class: bool) -> Statistics:
        """Return the figures of malloc_stats_print(3)."""
        return report(self.one, self.order, self._usages(), every_class)

    def _density(self) -> tuple[int, int]:
        """Return the bytes of pages in use, and those of the blocks in them."""
        each = self._usages()
        return sum(arena.active for arena in each), sum(arena.allocated - arena.cached for arena in each)

    def usage(self) -> str:
        """Return how many pages the blocks take, and how many are kept."""
        active, used = self._density()
        kept = self.free_touched
        more = f"; it keeps {human_size(kept)} of free pages" if kept else ""
        return f"{self.name}: {human_size(used)} of blocks in {human_size(active)} of pages{more}"

    def waste(self) -> Iterator[Finding]:
        """Yield pages in use that have few blocks, and pages that are kept for later."""
        active, used = self._density()
        kept = self.free_touched
        if kept >= ADVICE_BYTES and kept >= ADVICE_SHARE * (active + kept):
            yield unused(
                "untrimmed",
                f"{self.name} keeps {human_size(kept)} of free pages beside {human_size(active)} of pages in use",
                "",
                kept,
                ("malloc_stats",),
                alternative="the program just freed it, and soon needs it again",
            )
        if active - used >= ADVICE_BYTES and active - used >= ADVICE_SHARE * active:
            yield unused(
                "fragmentation",
                f"{self.name} has {human_size(active)} of pages in use for {human_size(used)} of blocks",
                "blocks of one size that live long and short share pages: free the long-lived ones together",
                active - used,
                ("malloc_stats", "heapsizes"),
            )

    # -- damage ---------------------------------------------------------------------------------------------------

    def check(self) -> Checked:
        """Return contradictions in extents and the tree that leads to them, in bitmaps and in tcaches."""
        found = list(self._contradictions())
        part = Part(
            self.name,
            self.one.root,
            chunks=len(self.one.extents),
            cached=self.caches.count,
            contradictions=len(found),
        )
        # The engine describes the first of them.
        more = self.one.extents.fault_count - len(self.one.extents.faults)
        return Checked([part], structures=found, undescribed=0 if self.process.target.missing else more)

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield those of the extents first (as many as the engine describes), then those of the tcaches."""
        for fault, record, page in self.one.extents.faults:
            if self.process.is_missing(record):
                continue  # what is not there is not damaged
            extent = self.one.extents.at(page)
            arena = first_arena(self.order) + extent[3] if extent is not None else None
            yield contradiction(arena, f"extent of {page:#x}", record, FAULTS[fault])
        for tcache in self.caches.all:
            for problem in tcache.problems:
                yield contradiction(None, "tcache", tcache.address, problem)
        for tcache, size_class, address in self.caches.wrong:
            size = self.one.layout.sizes[size_class]
            text = f"its bin of {size} bytes holds {address:#x}, where no block in use begins: freed twice, or damaged"
            yield contradiction(None, "tcache", tcache.address, text)


def heaps_of(found: Sequence[Jemalloc]) -> list[Heap]:
    """Return the heaps of the jemallocs of a process."""
    return [
        JemallocHeap(one.name, one.owned, notes=one.notes, found=one, order=order) for order, one in enumerate(found)
    ]
