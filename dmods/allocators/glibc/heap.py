"""The heap of glibc's malloc, as the rest of dmods sees it.

Almost every process has one, and most commands ask only for its blocks. So modules about addresses, figures and damage
are imported by the methods that need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional, TypeVar

from dmods.allocators.block import Block
from dmods.allocators.glibc.arenas import find_mallocs
from dmods.allocators.glibc.caches import cached_by_arena
from dmods.allocators.glibc.false_words import malloc_sizes, tcache_keys
from dmods.allocators.glibc.runs import MMAPPED, arrange, top_bytes
from dmods.allocators.glibc.state import NAME, State
from dmods.allocators.glibc.unseen import damaged_chunks, seen_anomalies
from dmods.allocators.numbers import NO_ARENA, arena_name
from dmods.allocators.protocol import Describer, Found, Heap, Process
from dmods.allocators.search import Search
from dmods.allocators.vocabulary import (
    ArenaKey,
    ArenaRow,
    Checked,
    Contradiction,
    Damage,
    Part,
    Place,
    Statistics,
)
from dmods.base.dataclass import dataclass, replace
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.finding import LIKELY, Finding
from dmods.modules.elf import PAGE
from dmods.process.mappings import subtract
from dmods.target import Target

if TYPE_CHECKING:
    from dmods.allocators.glibc.lists import FreeLists
    from dmods.allocators.glibc.usage import Usage

_LINKS = 16  # bytes of a free chunk that hold fd and bk, or a tcache's next and key
_LARGE_LINKS = 32  # a free chunk of a large bin also holds fd_nextsize and bk_nextsize
_LARGE = 1000  # malloc_usable_size of the smallest chunk of a large bin on 64-bit ports (MIN_LARGE_SIZE 1024)
_MANY_ARENAS = 4

Judged = TypeVar("Judged", bound=Finding)


@dataclass
class GlibcHeap(State):
    """All copies of glibc's malloc in the process, with their arenas."""

    lists: Optional[FreeLists] = None
    found_damages: Optional[list[Damage]] = None
    found_usages: Optional[list[Usage]] = None

    @property
    def summary(self) -> str:
        """Return the name, and how many arenas there are."""
        return f"{self.name} ({len(self.all)} arena{'' if len(self.all) == 1 else 's'})"

    def give_way(self, target: Target, others: Ranges) -> None:
        """Cut what other allocators took from sbrk out of the main arenas."""
        from dmods.allocators.glibc.shared import give_way

        give_way(Words(target.image(), target.arch.word), self.layout, others)
        self.owned = self.layout.owned

    def attached(self, process: Process) -> Heap:
        """Return a copy for a process heap."""
        found = super().attached(process)
        assert isinstance(found, GlibcHeap)
        found.lists = found.found_damages = found.found_usages = None
        return found

    def false_words(self, search: Search) -> Iterator[tuple[int, int]]:
        """Yield sizes in ``mp_``, and the keys by which a tcache knows its chunks."""
        yield from tcache_keys(self, search)
        yield from malloc_sizes(self, search)

    def claims(self) -> list[tuple[int, int, str]]:
        """Return the heaps of thread arenas, and blocks with a mapping of their own.

        An arena itself is not told apart: the main one lies in libc's data.
        """
        heaps = [(heap.start, heap.start + heap.size, "arena") for arena in self.all for heap in arena.heaps]
        known = Ranges((start, end) for start, end, _name in heaps)
        headers = known.without([(arena.address, arena.end) for arena in self.all])
        mapped = [(chunk, end, "heap") for chunk, end, kind, _arena, _usable in self.layout.runs if kind == MMAPPED]
        return [*heaps, *mapped, *((start, end, "") for start, end in headers)]

    # -- arenas ---------------------------------------------------------------------------------------------------

    @property
    def has_arenas(self) -> bool:
        """Return True."""
        return True

    def has_arena(self, number: Optional[int]) -> bool:
        """Return whether the number is a place among the arenas, or None: of blocks with mappings of their own."""
        return number is None or number < len(self.all)

    def arena_of(self, address: int) -> Optional[int]:
        """Return the number of the arena whose ``malloc_state`` or memory contains the address, or None."""
        from dmods.allocators.glibc.locate import arena_of

        return arena_of(self, address)

    def memory_of(self, number: int) -> list[tuple[int, int]]:
        """Return the stretches of chunks of an arena."""
        return sorted((start, end) for start, end, _kind, arena, _usable in self.layout.runs if arena == number)

    def arena_numbers(self) -> dict[str, int]:
        """Return the numbers of the arenas."""
        return {arena_name(number): number for number in range(len(self.all))}

    def arena_rows(self) -> list[ArenaRow]:
        """Return the arenas."""
        return [
            ArenaRow(arena.address, arena_name(number), arena.top, arena.system_mem, arena.attached)
            for number, arena in enumerate(self.all)
        ]

    def arena_keys(self, cores: Sequence[Sequence[Heap]], aligned: bool) -> Iterator[ArenaKey]:
        """Yield the main arena, the blocks without one, and the thread arenas: glibc puts a new one second."""
        mains = [one.all[0].address for core in cores for one in core if isinstance(one, State)]
        if aligned:
            mains = mains[-1:]
        yield ArenaKey(NO_ARENA, "mmapped", arena_name(None))
        for number, arena in enumerate(self.all):
            if number == 0 and arena.address in mains:
                yield ArenaKey(number, "main", arena_name(0))
            elif aligned:
                yield ArenaKey(number, ("arena", arena.address), f"arena at {arena.address:#x}")
            else:
                yield ArenaKey(number, "thread arenas", "thread arenas")

    # -- addresses ------------------------------------------------------------------------------------------------

    def place(self, describer: Describer, address: int) -> Optional[Place]:
        """Return what an address is that is in no block."""
        from dmods.allocators.glibc.locate import place

        return place(self, describer, address)

    def holding(self, describer: Describer, block: Block) -> str:
        """Return the list that a free block is on."""
        return self._lists(describer).holding(block)

    def structure(self, describer: Describer, block: Block) -> Optional[str]:
        """Return whose tcache the block is."""
        return self._lists(describer).tcache(block.address) if block.address in self.caches.tcaches else None

    def merged(self, block: Block, address: int) -> Optional[bool]:
        """Return whether malloc merged the free chunk: not while it is in a tcache or a fastbin."""
        from dmods.allocators.glibc.merged import is_merged

        return is_merged(self, block, address)

    def _lists(self, describer: Describer) -> FreeLists:
        if self.lists is None:
            from dmods.allocators.glibc.lists import FreeLists

            self.lists = FreeLists(self, describer.thread_named)
        return self.lists

    @property
    def single(self) -> Optional[str]:
        """Return what a block without an arena has."""
        return "a mapping"

    def links_in_free(self, block: Block) -> int:
        """Return the bytes of a free chunk's links."""
        return _LARGE_LINKS if block.size >= _LARGE else _LINKS

    # -- figures --------------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Return how many arenas and tcaches there are."""
        return len(self.all), len(self.caches.tcaches)

    @property
    def usages(self) -> list[Usage]:
        """Return the use of each arena, computed once."""
        if self.found_usages is None:
            from dmods.allocators.glibc.usage import usages

            self.found_usages = usages(self)
        return self.found_usages

    def report(self, every_class: bool) -> Statistics:
        """Return what malloc_stats(3) and mallinfo2(3) say."""
        del every_class
        from dmods.allocators.glibc.report import report

        return report(self, self.usages)

    def own_report(self) -> list[str]:
        """Return the text of malloc_stats(3)."""
        from dmods.allocators.glibc.report import own_lines

        return list(own_lines(self, self.usages))

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Return the top chunks."""
        tops = ((arena.top, arena.top + top_bytes(self.process.words, arena)) for arena in self.all)
        return sorted((start, end) for start, end in tops if start < end)

    @property
    def free_place(self) -> str:
        """Return where the top chunks are."""
        return f"free at the top of {'the heap' if len(self.all) == 1 else 'arenas'}"

    def usage(self) -> str:
        """Return how much of the arenas is free."""
        from dmods.allocators.glibc.usage import used

        return used(self.usages)

    def waste(self) -> Iterator[Finding]:
        """Yield what fewer arenas would save, or what malloc_trim() would give back."""
        from dmods.allocators.glibc.usage import waste

        yield from waste(self.usages)

    def advice(self) -> str:
        """Return how to get free memory back."""
        if len(self.all) > _MANY_ARENAS:
            return (
                f"{len(self.all)} arenas keep it: start with MALLOC_ARENA_MAX=2, or call malloc_trim(0) now and then."
            )
        return "malloc_trim(0) gives whole free pages back; between blocks in use they are fragments."

    # -- damage ---------------------------------------------------------------------------------------------------

    def damages(self) -> list[Damage]:
        """Return the damaged chunks. They are looked at once."""
        if self.found_damages is None:
            from dmods.allocators.glibc.damage import damages

            self.found_damages = self._as_sure(damages(self))
        return self.found_damages

    def _as_sure(self, found: Iterable[Judged]) -> list[Judged]:
        """Return the findings. They are only likely if a thread was changing an arena."""
        return [replace(each, confidence=LIKELY) if self.is_locked else each for each in found]

    def check(self) -> Checked:
        """Return the damage, and a part for each arena, for all tcaches, mapped blocks and malloc as a whole."""
        from dmods.allocators.glibc.integrity import links, structures

        broken, wrong = self._as_sure(structures(self)), self._as_sure(links(self))
        undescribed = self.bins.problem_count - len(self.bins.problems)
        return Checked(self._parts(broken, wrong), self.damages(), broken, wrong, undescribed)

    def _parts(self, structures: Sequence[Contradiction], links: Sequence[Contradiction]) -> list[Part]:
        """Return the arenas, then the other parts that exist."""
        words, index, reports = self.process.words, self.process.engine, self.process.reports
        cached = cached_by_arena(words, index, self.caches)
        arenas = [
            Part(
                arena_name(number),
                arena.address,
                arena.locked,
                chunks=0,
                free=0,
                in_bins=self.bins.count.get(number, 0),
                in_fastbins=self.caches.fast_count.get(number, 0),
                cached=cached.get(number, (0, 0))[1],
            )
            for number, arena in enumerate(self.all)
        ]
        tcaches, mapped = Part("tcaches", cached=sum(count for _, count in cached.values())), Part("mmapped", chunks=0)
        whole = Part("malloc")
        for (_, _, _, number, _), report_ in zip(index.runs(), reports):
            part = mapped if number == NO_ARENA else arenas[number]
            part.chunks = (part.chunks or 0) + report_["chunks"]
            part.bad_chunks += damaged_chunks(report_, words.size, self.begun)
            if part.free is not None:
                part.free += report_["free_chunks"]
        walked = {each[1] for report_ in reports for each in seen_anomalies(report_, words.size, self.begun)}
        for damage in self.damages():
            arenas[damage.arena].bad_chunks += damage.kind == "top" and damage.chunk not in walked
        for link in links:
            (tcaches if link.arena is None else arenas[link.arena]).bad_links += 1
        for structure in structures:
            (whole if structure.arena is None else arenas[structure.arena]).contradictions += 1
        rest = [part for part in (tcaches, mapped, whole) if part.cached or part.chunks or part.problems]
        return [*arenas, *rest]


def find_glibc(target: Target, taken: Ranges) -> Found:
    """Return all copies of glibc's malloc as one heap."""
    rest = subtract(target.mappings(), taken)
    words, hint = Words(target.image(), target.arch.word), target.lookup("main_arena")
    mallocs = find_mallocs(words, rest, hint.address if hint else None)
    layout = arrange(words, mallocs, rest, PAGE)
    zeroed = [address for malloc in mallocs for address in malloc.zeroed]
    heap = GlibcHeap(NAME, layout.owned, notes=layout.notes, zeroed=zeroed, layout=layout)
    return Found([heap] if mallocs else [])
