"""The heap of a process: its blocks, its roots and its leaks. It is cached while the process does not move."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Callable, Optional

from dmods import _engine
from dmods.allocators.numbers import allocator_number
from dmods.allocators.protocol import Heap
from dmods.allocators.search import Search
from dmods.allocators.unwalked import unwalked_heap_notes
from dmods.allocators.vocabulary import Chunks, Slabs, SomeExtents
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.block import DIRECT, INDIRECT, LIVE, Block, block_of_row
from dmods.heap.collector import find_collector, find_unused
from dmods.heap.false_pointers.decide import without_false_pointers
from dmods.heap.follow import PLAIN, Follow, without_tag
from dmods.heap.foreign import foreign_malloc, foreign_note
from dmods.heap.garbage import Garbage, find_garbage
from dmods.heap.leak_totals import Leaks, group_of_row
from dmods.heap.roots.hidden_pointers import code_words, jump_buffer_values
from dmods.heap.roots.live_memory import Roots, bury_made_stacks, find_roots, live_stacks, readable_ranges
from dmods.heap.survey import program_mappings, survey
from dmods.process import found_objects, name_service, stdio
from dmods.process.vectors import unaligned_values
from dmods.records.sources import allocation_records
from dmods.target import Target

LOST_CACHE = "free, or leaked by a thread that a fork did not copy"  # of a block that may have been in a tcache
BY_ENDS = "held only by end pointers of the block before it"
BESIDE_ENDS = "held only by blocks that end pointers hold"
_BATCH = 65536
_LEAKED = (DIRECT, INDIRECT)


class ProcessHeap:
    """The heap of one process. ``find_heap`` makes it. ``notes`` say what is uncertain.

    ``follow`` says which words count as pointers.
    """

    def __init__(self, target: Target, follow: Follow = PLAIN) -> None:
        self.target, self.follow = target, follow
        self.notes: list[str] = []
        self.words = Words(target.image(), target.arch.word)
        started = _Clock()
        self.records = allocation_records(target)
        self.mappings = program_mappings(target)
        surveyed = survey(target)
        self.heaps: list[Heap] = [one.attached(self) for one in surveyed.heaps]
        self.owned = surveyed.owned
        self.notes.extend(surveyed.notes)
        self.roots: Roots = find_roots(target, self.owned, self.records)
        self.collector = find_collector(target)
        # Words in blocks, too: no rule of false_pointers, which know the roots alone, may name them.
        rules = (stdio, found_objects, name_service)
        words = [part for rule in rules for part in rule.false_pointers(target)]
        words += (part for one in self.heaps for part in one.dead)
        self.roots.bury(sorted([*self.collector.dead, *words]))
        self.notes.extend(self.collector.notes)
        walks = [each for one in self.heaps for each in one.walks() if isinstance(each, Chunks)]
        chunks = [(start, end) for each in walks for start, end, *_ in each.runs]
        self.unused = find_unused(target, self.heaps, live_stacks(target, self.roots), self.roots.values, chunks)
        if follow.stale_links:
            linked = (one.slots for one in self.heaps if one.leaves_links)
            self.unused += [_engine.UnusedWords.stale_links(target.image(), slots) for slots in linked]
        self.index = self._index()
        buried = bury_made_stacks(target, self.roots, self.owned, self._live_block_of)
        if any(self.owned.within(*part) for part in buried):
            self.index = self._index()  # blocks hold the dead parts: what their words point to was noted
        self.reports = self.index.reports()
        self._release()
        self._note_damage()
        self._leaks: Optional[Leaks] = None
        self.garbage: list[Garbage] = []  # known with the leaks
        self.doubtful: dict[int, str] = {}  # address -> what is uncertain about the block, known with the leaks
        self.mark_sources: tuple[list[tuple[int, int]], list[int]] = ([], [])
        self.code_words: list[tuple[int, int]] = []  # pointers in code that the program made
        self._build = started.elapsed()
        if any(one.may_have_lost() for one in self.heaps):
            self.leaks()  # what caches that are gone held is free for every command, not only for those about leaks

    def _release(self) -> None:
        """Set the blocks in caches free, and make the allocators' own blocks their own."""
        for one in self.heaps:
            one.release()
        structures = [at for recording in self.records.recordings for at in recording.structures]
        if structures:
            self.index.own(structures, True)

    # -- finding it -----------------------------------------------------------------------------------------------

    @property
    def found(self) -> bool:
        """Return whether the process ever used an allocator that dmods knows."""
        return any(one.is_used for one in self.heaps)

    @property
    def bytes(self) -> int:
        """Return the bytes in chunks, beside them, in extents that are in use, and in other blocks."""
        return sum(one.bytes for one in self.heaps)

    @property
    def thread_pointers(self) -> Sequence[int]:
        """Return the thread pointers, those of threads that have exited, too, and words that look like one."""
        return self.roots.thread_pointers

    def heap_of(self, block: Block) -> Optional[Heap]:
        """Return the allocator's heap that has the block, or None."""
        return next((one for one in self.heaps if one.has_arena(block.arena)), None)

    def _index(self) -> _engine.Heap:
        walks = [(allocator_number(one.allocator), each) for one in self.heaps for each in one.walks()]
        runs = [(*run, who) for who, each in walks if isinstance(each, Chunks) for run in each.runs]
        watched = [kind for _who, each in walks if isinstance(each, Chunks) for kind in each.watched]
        with _bar("reading the heap", self.bytes) as progress:
            return _engine.Heap(
                self.target.image(),
                self.words.size,
                runs,
                self.roots.dead,
                watched,
                engine_threads(),
                progress,
                [(each.extents, each.first, who) for who, each in walks if isinstance(each, SomeExtents)],
                [(each.slots, each.arena, who) for who, each in walks if isinstance(each, Slabs)],
                [self.collector.links] if self.collector.links is not None else [],
                self.unused,
            )

    def dump_notes(self) -> list[str]:
        """Return the notes about the dump and the moment it was taken. Notes about damage are not among them."""
        out = [note for one in self.heaps for note in one.moment_notes()]
        missing = sum(end - start for report in self.reports for start, end in report["missing"])
        missing += self._missing_bare()
        if missing:
            out.append(
                f"{missing} bytes of the heap are not in the dump: what they pointed to may be reported as leaked"
            )
        if self.index.dropped:
            out.append(
                f"{self.index.dropped} stretches of heap overlap others, or are not in the dump, and were left out"
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
        if not self.index.missing:
            return 0
        dumped = Ranges((m.start, m.end) for m in self.target.mappings() if m.dumped)
        return sum(end - start for part in self.index.missing for start, end in dumped.within(*part))

    def _note_damage(self) -> None:
        self.notes.extend(self.dump_notes())
        self.notes.extend(note for one in self.heaps for note in one.damage_notes())

    def is_missing(self, address: int) -> bool:
        """Return whether a truncated dump promises the memory at the address, and lacks it."""
        return any(start <= address < end for start, end in self.target.missing)

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

    # -- leaks ----------------------------------------------------------------------------------------------------

    def leaks(self) -> Leaks:
        """Return the totals of the unreachable blocks. They are computed once.

        Before this has run, no block has the state DIRECT or INDIRECT.
        """
        if self._leaks is None:
            self._leaks = self._find_leaks()
        return self._leaks

    def _find_leaks(self) -> Leaks:
        started = _Clock()
        ranges = self.root_ranges()
        for report in self.reports:
            ranges.extend(report["gaps"])
            ranges.extend(report["lost"])
        total = sum(end - start for start, end in ranges)
        with _bar("marking", 0) as progress:  # the total is not known before the end
            values = self.roots.values + [address for one in self.heaps for address in one.kept()]
            self.code_words = code_words(self.target, self.owned, self.roots)
            values += sorted({value for _at, value in self.code_words})
            searched = list(Ranges([*ranges, *self.owned]))
            values += jump_buffer_values(self.target, searched, self.owned, self._is_live)
            vectors = self._vector_values()
            self.mark_sources = (ranges, values + vectors)
            candidates, reached, by_vectors = self._mark(ranges, values, vectors, progress)
            totals = self.index.find_leaks(progress)
            if self._release_lost():
                candidates, reached, by_vectors = self._mark(ranges, values, vectors, progress)
                totals = self.index.find_leaks(progress)
            leaked = ((block.address, block.size) for block in self.blocks(*_LEAKED))
            garbage = self.collector.garbage(leaked, self.unused[0] if self.unused else None)
            self.garbage = find_garbage(self.index, self.heaps)
            garbage += [address for one in self.garbage for address in one.addresses]
            if garbage:
                values = [*values, *garbage]
                self.mark_sources = (ranges, values + vectors)
                candidates, reached = map(sum, zip((candidates, reached), self.index.mark([], garbage, progress)))
                totals = self.index.find_leaks(progress)
        direct_count, direct_bytes, indirect_count, indirect_bytes = totals
        seconds, cpu = started.elapsed()
        return Leaks(
            direct_count,
            direct_bytes,
            indirect_count,
            indirect_bytes,
            [group_of_row(row) for row in self.index.groups()],
            total,
            candidates,
            reached,
            seconds + self._build[0],
            cpu + self._build[1],
            by_vectors,
        )

    def _mark(
        self, ranges: list[tuple[int, int]], values: list[int], vectors: list[int], progress: Callable[[int], object]
    ) -> tuple[int, int, list[tuple[int, int]]]:
        """Mark what the roots lead to. Return (candidate pointers, blocks reached, Leaks.by_vectors)."""
        if self.follow.odd:
            self.index.take_odd(self.follow.unaligned, self.follow.tagged, self.roots.dead)
        if not self.follow.unaligned:
            self.index.hide_ends()
        candidates, reached = self.index.mark(ranges, values, progress)
        by_vectors = []
        for value in vectors:
            counts = self.index.mark([], [value])
            candidates, reached = candidates + counts[0], reached + counts[1]
            if counts[1]:
                by_vectors.append((value, counts[1]))
        held, kept = self.index.reveal_ends()
        self.doubtful = {address: why for address, why in self.doubtful.items() if why == LOST_CACHE}
        self.doubtful.update([*((address, BY_ENDS) for address in held), *((address, BESIDE_ENDS) for address in kept)])
        return candidates, reached + len(held) + len(kept), by_vectors

    def _vector_values(self) -> list[int]:
        """Return the words of vector registers that point into a block."""
        found = set(self.roots.vectors)
        if self.follow.tagged:
            found.update(address for value in self.roots.vectors for address in without_tag(value))
        if self.follow.unaligned:
            for thread in self.target.threads():
                found.update(unaligned_values(thread.vectors or {}, self.words.size))
        parts = list(self.owned)
        if not parts:
            return []
        low, high = parts[0][0], parts[-1][1]
        return sorted(value for value in found if low <= value < high and self.index.find(value) is not None)

    def _release_lost(self) -> bool:
        """Set the blocks free that were in caches which are gone. Return whether there are such caches.

        Only unreachable blocks can be such a cache's. So this begins with the heap marked. It ends with a new index.
        """
        lost = [found for one in self.heaps if (found := one.lost(self._leaked)) is not None]
        if not lost:
            return False
        self.index = self._index()
        self._release()
        doubtful = [address for each in lost for address in each.doubtful]
        self.index.release(doubtful)
        self.doubtful.update(dict.fromkeys(doubtful, LOST_CACHE))
        self.index.own([address for each in lost for address in each.own], False)
        return True

    def _leaked(self) -> Iterator[tuple[int, int, Optional[int]]]:
        return ((block.address, block.size, block.arena) for block in self.blocks(DIRECT, INDIRECT))

    def is_garbage(self, block: Block) -> bool:
        """Return whether a garbage collector will free the block: nothing reaches it. False before ``leaks()``."""
        return any(block.address in one for one in self.garbage)

    def root_ranges(self) -> list[tuple[int, int]]:
        """Return the root ranges without the thread-local memory of allocators and without false pointers.

        Memory of allocators that may be in use is among them.
        """
        ranges = self.roots.ranges
        for one in self.heaps:
            ranges = [*ranges, *Ranges(self.roots.dead).without(one.roots(self.target, self.follow.unaligned))]
        for one in self.heaps:
            ranges = one.silent().without(ranges)
        search = Search(self.target, self.owned, ranges, self._block_of)
        return without_false_pointers(search, self.heaps)

    def _block_of(self, address: int) -> Optional[int]:
        row = self.index.find(address)
        return row.address if row is not None else None

    def _is_live(self, address: int) -> bool:
        return self._live_block_of(address) is not None

    def _live_block_of(self, address: int) -> Optional[tuple[int, int]]:
        block = self.block_at(address)
        return (block.address, block.end) if block is not None and block.state == LIVE else None

    def reached_without(self, block: Block, addresses: list[int]) -> list[bool]:
        """Return for each address whether a path that avoids `block` leads to the block that it lies in.

        Paths begin at the roots; for a leaked `block` at the direct leaks. It takes about as long as `leaks()`.
        """
        self.leaks()
        with _bar("marking without the block", 0) as progress:
            return self.index.reached_without(*self.mark_sources, block.address, addresses, progress)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def blocks(self, *states: int) -> Iterator[Block]:
        """Yield every block in one of the states, by address. DIRECT and INDIRECT need ``leaks()`` first."""
        start = 0
        while True:
            batch = self.index.blocks(list(states), start, _BATCH)
            yield from (block_of_row(row) for row in batch)
            if len(batch) < _BATCH:
                return
            start = batch[-1].address + 1

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that ``address`` points into, free or not, or None."""
        row = self.index.find(address)
        return block_of_row(row) if row is not None else None

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
        with _bar("searching for pointers", sum(end - start for start, end in ranges)) as told:
            in_order = [wanted[place] for place in order]
            found = self.index.pointers(ranges, self.roots.dead, in_order, most, told)
        links = self.collector.links
        if links is not None:  # every object that Python's collector tracks points to its neighbours in a list
            found = [[at for at in addresses if at not in links] for addresses in found]
        for unused in self.unused:
            found = [[at for at in addresses if at not in unused] for addresses in found]
        return [addresses for _place, addresses in sorted(zip(order, found))]


@cached
def find_heap(target: Target) -> ProcessHeap:
    """Return the heap of the target, computed once for each state of the target."""
    return ProcessHeap(target)


def find_heap_as(target: Target, follow: Follow) -> ProcessHeap:
    """Return the heap of the target with these pointers. It is computed once, too."""
    return find_heap(target) if follow == PLAIN else _finder(follow)(target)


@cache
def _finder(follow: Follow) -> Callable[[Target], ProcessHeap]:
    return cached(partial(ProcessHeap, follow=follow))


def engine_threads() -> int:
    """Return the number of threads that the engine uses: DMODS_THREADS, or one for each processor, at most four."""
    asked = os.environ.get("DMODS_THREADS", "")
    return max(1, int(asked)) if asked.isdigit() else min(4, os.cpu_count() or 1)


class _Clock:
    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def elapsed(self) -> tuple[float, float]:
        """Return the wall seconds and the CPU seconds since the start."""
        return time.monotonic() - self._wall, time.process_time() - self._cpu


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], object]]:
    with Progress(label) as bar:
        yield lambda done: bar.update(done, total)
