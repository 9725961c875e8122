"""The blocks of a process: in use, free, or an allocator's own. Nothing is known of leaks here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Callable, Optional

from dmods import _engine
from dmods.allocators.numbers import allocator_number
from dmods.allocators.protocol import Building, Heap
from dmods.allocators.unwalked import unwalked_heap_notes
from dmods.allocators.vocabulary import Chunks, Lost, Slabs, SomeExtents
from dmods.base.dataclass import dataclass
from dmods.base.progress import Clock, bar
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.block import Block, block_of_row
from dmods.heap.collector import Collector, find_collector, find_unused
from dmods.heap.follow import Follow
from dmods.heap.foreign import foreign_malloc, foreign_note
from dmods.heap.roots.live_memory import Roots, dead_made_stacks, find_roots, live_stacks, readable_ranges
from dmods.heap.survey import Survey
from dmods.process import found_objects, name_service, stdio
from dmods.records.model import Records
from dmods.target import AddressRange, Target

LOST_CACHE = "free, or leaked by a thread that a fork did not copy"  # of a block that may have been in a tcache
_BATCH = 65536


@dataclass(frozen=True)
class Start:
    """The roots, Python's collector, and words that nothing uses: the bytes of a heap are read with these."""

    survey: Survey
    follow: Follow
    roots: Roots
    collector: Collector
    unused: Sequence[_engine.UnusedWords]


class Index:
    """The blocks of a process: the third stage of its heap. Its state does not change.

    ``heaps`` are those of the allocators, whose free lists are followed. ``reports`` say what the walk of chunks met.
    ``doubtful`` says of blocks what is uncertain.
    """

    def __init__(self, start: Start, lost: Sequence[Lost] = ()) -> None:
        clock = Clock()
        self.survey, self.follow = start.survey, start.follow
        self.collector, self.unused = start.collector, start.unused
        self.target: Target = start.survey.target
        self.records: Records = start.survey.records
        self.owned: Ranges = start.survey.owned
        self.words: Words = start.survey.words
        self.mappings: Sequence[AddressRange] = start.survey.mappings
        self.roots, builder = _read(start)
        self.reports: Sequence[_engine.RunReport] = builder.reports()
        building = Building(self.target, self.words, self.roots.thread_pointers, self.reports, builder)
        heaps = [copy(one) for one in self.survey.heaps]
        for one in heaps:
            one.release(building)
        structures = [at for recording in self.records.recordings for at in recording.structures]
        if structures:
            builder.own(structures, True)
        gone = [address for each in lost for address in each.doubtful]
        if lost:
            builder.release(gone)
            builder.own([address for each in lost for address in each.own], False)
        self.doubtful = dict.fromkeys(gone, LOST_CACHE)
        self.engine: _engine.Index = builder.index()
        self.heaps: list[Heap] = [one.attached(self) for one in heaps]
        self.cost = clock.elapsed()

    def may_have_lost(self) -> bool:
        """Return whether caches may be gone whose blocks are not known to be free: see ``Heap.lost``."""
        return any(one.may_have_lost() for one in self.heaps)

    # -- what is there --------------------------------------------------------------------------------------------

    @property
    def found(self) -> bool:
        """Return whether the process ever used an allocator that dmods knows."""
        return any(one.is_used for one in self.heaps)

    @property
    def bytes(self) -> int:
        """Return the bytes in chunks, beside them, in extents that are in use, and in other blocks."""
        return _bytes(self.heaps)

    @property
    def thread_pointers(self) -> Sequence[int]:
        """Return the thread pointers, those of threads that have exited, too, and words that look like one."""
        return self.roots.thread_pointers

    def heap_of(self, block: Block) -> Optional[Heap]:
        """Return the allocator's heap that has the block, or None."""
        return next((one for one in self.heaps if one.has_arena(block.arena)), None)

    def is_missing(self, address: int) -> bool:
        """Return whether a truncated dump promises the memory at the address, and lacks it."""
        return any(start <= address < end for start, end in self.target.missing)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def blocks(self, *states: int) -> Iterator[Block]:
        """Yield every block in one of the states LIVE (in use, leaked or not), FREE and OWN, by address."""
        return listed(self.engine.blocks, states)

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that ``address`` points into, free or not, or None."""
        row = self.engine.find(address)
        return block_of_row(row) if row is not None else None

    def is_garbage(self, block: Block) -> bool:
        """Return False: nobody has looked for garbage yet."""
        del block
        return False

    def guard_intact(self, block: Block) -> Optional[bool]:
        """Return whether the first bytes of the guard behind a block are intact; None where it has no guard.

        What is written beyond an end begins at that end. So later bytes do not count.
        """
        for recording in self.records.recordings:
            record = self.records.of_block(block.address)
            if recording.guards is not None and record is not None and record.requested < block.size:
                first = self.words.image.read(block.address + record.requested, 1)
                return first == bytes([recording.guards.redzone_byte]) if first else None
        return None

    # -- pointers -------------------------------------------------------------------------------------------------

    def referrers(self, block: Block, most: int, start_only: bool = False) -> list[int]:
        """Return the addresses of up to ``most`` words in memory that point into the block.

        With ``start_only``, they point to its first byte. Dead memory and free blocks are searched as well.
        """
        end = block.address + 1 if start_only else block.end
        return self.pointers([(block.address, end)], most)[0]

    def pointers(self, wanted: list[tuple[int, int]], most: int) -> list[list[int]]:
        """Return for each range the addresses of up to ``most`` words in memory that point into it.

        The ranges may have any order and do not overlap. Memory is read once, but for heaps of chunks: their pointers
        are known. There, a word that is part of a text does not count as a pointer.
        """
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        ranges = readable_ranges(self.target, self.mappings)
        with bar("searching for pointers", sum(end - start for start, end in ranges)) as told:
            in_order = [wanted[place] for place in order]
            found = self.engine.pointers(ranges, list(self.roots.dead), in_order, most, told)
        links = self.collector.links
        if links is not None:  # every object that Python's collector tracks points to its neighbours in a list
            found = [[at for at in addresses if at not in links] for addresses in found]
        for unused in self.unused:
            found = [[at for at in addresses if at not in unused] for addresses in found]
        return [addresses for _place, addresses in sorted(zip(order, found))]

    # -- notes ----------------------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """Return what is uncertain: about the allocators, the dump and damage."""
        damage = [note for one in self.heaps for note in one.damage_notes()]
        return [*self.survey.notes, *self.collector.notes, *self.dump_notes(), *damage]

    def dump_notes(self) -> list[str]:
        """Return the notes about the dump and the moment it was taken. Notes about damage are not among them."""
        out = [note for one in self.heaps for note in one.moment_notes()]
        missing = sum(end - start for report in self.reports for start, end in report["missing"])
        missing += self._missing_bare()
        if missing:
            out.append(
                f"{missing} bytes of the heap are not in the dump: what they pointed to may be reported as leaked"
            )
        if self.engine.dropped:
            out.append(
                f"{self.engine.dropped} stretches of heap overlap others, or are not in the dump, and were left out"
            )
        out.extend(self.unwalked(self._other_anonymous_bytes))
        return out

    def unwalked(self, other_bytes: Callable[[], tuple[int, int]] = lambda: (0, 0)) -> list[str]:
        """Return a note for each heap of the process that is not walked. ``other_bytes``: see unwalked_heap_notes."""
        walked = [one.allocator for one in self.heaps]
        foreign = foreign_malloc(self.target)
        notes = [foreign_note(foreign)] if foreign is not None else []
        return unwalked_heap_notes(self.target, walked, other_bytes, notes)

    def _other_anonymous_bytes(self) -> tuple[int, int]:
        from dmods.heap.mapping_kinds import other_anonymous_bytes

        return other_anonymous_bytes(self.target)

    def _missing_bare(self) -> int:
        """Return how many bytes of slabs and extents the dump lacks.

        The kernel leaves out whole mappings that were never touched. These do not count.
        """
        if not self.engine.missing:
            return 0
        dumped = Ranges((m.start, m.end) for m in self.target.mappings() if m.dumped)
        return sum(end - start for part in self.engine.missing for start, end in dumped.within(*part))


def find_start(survey: Survey, follow: Follow) -> Start:
    """Return what the bytes are read with, but for what only the blocks themselves show."""
    target = survey.target
    roots, collector = find_roots(target, survey.owned, survey.records), find_collector(target)
    # Words in blocks, too: no rule of false_pointers, which know the roots alone, may name them.
    rules = (stdio, found_objects, name_service)
    words = [part for rule in rules for part in rule.false_pointers(target)]
    words += (part for one in survey.heaps for part in one.dead)
    roots = roots.without(sorted([*collector.dead, *words]))
    chunks = [(start, end) for one in survey.heaps for walk in _chunks(one) for start, end, *_ in walk.runs]
    unused = find_unused(target, survey.heaps, live_stacks(target, roots), roots.values, chunks)
    if follow.stale_links:
        linked = (one.slots for one in survey.heaps if one.leaves_links)
        unused += [_engine.UnusedWords.stale_links(target.image(), slots) for slots in linked]
    return Start(survey, follow, roots, collector, unused)


def _read(start: Start) -> tuple[Roots, _engine.HeapBuilder]:
    """Read the bytes. The dead parts of stacks that the program made are taken out of the roots.

    Blocks prove where these stacks end. If they lie in blocks, the bytes are read again: what their words point to was
    noted.
    """
    survey, builder = start.survey, _pass(start, start.roots)

    def block_of(address: int) -> Optional[tuple[int, int]]:
        row = builder.find(address)
        return (row.address, row.address + row.size) if row is not None and row.state == 0 else None

    dead = dead_made_stacks(survey.target, start.roots, survey.owned, block_of)
    roots = start.roots.without(dead) if dead else start.roots
    in_blocks = any(survey.owned.within(*part) for part in dead)
    return roots, _pass(start, roots) if in_blocks else builder


def _pass(start: Start, roots: Roots) -> _engine.HeapBuilder:
    heaps, links = start.survey.heaps, start.collector.links
    walks = [(allocator_number(one.allocator), each) for one in heaps for each in one.walks()]
    runs = [(*run, who) for who, each in walks if isinstance(each, Chunks) for run in each.runs]
    watched = [kind for _who, each in walks if isinstance(each, Chunks) for kind in each.watched]
    words = start.survey.words
    with bar("reading the heap", _bytes(heaps)) as progress:
        return _engine.HeapBuilder(
            words.image,
            words.size,
            runs,
            list(roots.dead),
            watched,
            engine_threads(),
            progress,
            [(each.extents, each.first, who) for who, each in walks if isinstance(each, SomeExtents)],
            [(each.slots, each.arena, who) for who, each in walks if isinstance(each, Slabs)],
            [links] if links is not None else [],
            list(start.unused),
        )


def _chunks(heap: Heap) -> Iterator[Chunks]:
    return (walk for walk in heap.walks() if isinstance(walk, Chunks))


def _bytes(heaps: Sequence[Heap]) -> int:
    return sum(one.bytes for one in heaps)


def listed(rows: Callable[[list[int], int, int], list[_engine.Block]], states: Sequence[int]) -> Iterator[Block]:
    """Yield the blocks in one of the states by address. ``rows`` returns the rows of so many from an address on."""
    start = 0
    while True:
        batch = rows(list(states), start, _BATCH)
        yield from (block_of_row(row) for row in batch)
        if len(batch) < _BATCH:
            return
        start = batch[-1].address + 1


def engine_threads() -> int:
    """Return the number of threads that the engine uses: DMODS_THREADS, or one for each processor, at most four."""
    asked = os.environ.get("DMODS_THREADS", "")
    return max(1, int(asked)) if asked.isdigit() else min(4, os.cpu_count() or 1)
