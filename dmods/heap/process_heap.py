"""The heap of a process: its blocks, its roots and its leaks. It is cached while the process does not move."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Callable, Optional

from dmods import _engine
from dmods.allocators.glibc import bins, caches, runs
from dmods.allocators.jemalloc import heap as jemalloc
from dmods.allocators.jemalloc.orphans import Pattern, find_orphans
from dmods.allocators.unwalked import unwalked_heap_notes
from dmods.base.cached import cached
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.block import DIRECT, INDIRECT, LIVE, Block, block_of_row
from dmods.heap.code_words import code_words
from dmods.heap.collector import find_collector, find_unused
from dmods.heap.false_pointers.decide import without_false_pointers
from dmods.heap.false_pointers.search import Search
from dmods.heap.foreign import foreign_malloc, foreign_note
from dmods.heap.garbage import Garbage, find_garbage
from dmods.heap.jump_buffers import jump_buffer_values
from dmods.heap.leaks import Leaks, group_of_row
from dmods.heap.mapping_kinds import other_anonymous_bytes
from dmods.heap.roots import Roots, bury_made_stacks, find_roots, live_stacks, readable_ranges
from dmods.heap.survey import program_mappings, survey
from dmods.heap.unseen import damaged_chunks, seen_problems, unseen_parts
from dmods.process import stdio
from dmods.process.mappings import mapping_at
from dmods.process.vectors import unaligned_values
from dmods.records.sources import allocation_records
from dmods.target import Target

NO_HEAP = "no heap: the process used neither glibc's malloc nor a jemalloc, or its data is not in the dump"
LOST_CACHE = "free, or leaked by a thread that a fork did not copy"  # of a block that may have been in a tcache
BY_ENDS = "held only by end pointers of the block before it"
BESIDE_ENDS = "held only by blocks that end pointers hold"
_TLS_REACH = 16 << 10  # bytes around a thread pointer where its pointer to the tcache is searched
_TLS_STEP = 1 << 20  # bytes that are searched at once
_BATCH = 65536
_LEAKED = (DIRECT, INDIRECT)


class ProcessHeap:
    """The heap of one process. ``find_heap`` makes it. ``notes`` say what is uncertain.

    ``unaligned``: a pointer may begin at any byte of a root or a block. ``stale_links``: a free list's link in a block
    that nobody wrote to since is no pointer.
    """

    def __init__(self, target: Target, unaligned: bool = False, stale_links: bool = False) -> None:
        self.target = target
        self.unaligned = unaligned
        self.notes: list[str] = []
        self.words = Words(target.image(), target.arch.word)
        started = _Clock()
        self.records = allocation_records(target)
        self.mappings = program_mappings(target)
        surveyed = survey(target)
        self.layout = surveyed.glibc
        self.arenas = self.layout.arenas
        self.jemallocs = surveyed.jemallocs
        self.walked = surveyed.walked
        self.owned = surveyed.owned
        self.notes.extend(surveyed.notes)
        self.roots: Roots = find_roots(target, self.owned, self.records)
        self.collector = find_collector(target)
        # Words in blocks, too: no rule of false_pointers, which know the roots alone, may name them.
        words = (*stdio.false_pointers(target), *(part for heap in self.walked for part in heap.dead))
        self.roots.bury(sorted([*self.collector.dead, *words]))
        self.notes.extend(self.collector.notes)
        chunks = [(start, end) for start, end, *_ in self.layout.runs]
        self.unused = find_unused(target, self.walked, live_stacks(target, self.roots), self.roots.values, chunks)
        if stale_links:
            linked = (heap.slots for heap in self.walked if heap.leaves_links)
            self.unused += [_engine.UnusedWords.stale_links(target.image(), slots) for slots in linked]
        self.index = self._index()
        buried = bury_made_stacks(target, self.roots, self.owned, self._live_block_of)
        if any(self.owned.within(*part) for part in buried):
            self.index = self._index()  # blocks hold the dead parts: what their words point to was noted
        self.reports = self.index.reports()
        self.unseen = unseen_parts(self.reports, self.words.size)
        self._release()
        self._note_damage()
        self._leaks: Optional[Leaks] = None
        self.garbage: list[Garbage] = []  # known with the leaks
        self.doubtful: dict[int, str] = {}  # address -> what is uncertain about the block, known with the leaks
        self.mark_sources: tuple[list[tuple[int, int]], list[int]] = ([], [])
        self.code_words: list[tuple[int, int]] = []  # pointers in code that the program made
        self._bins: Optional[bins.Bins] = None
        self._build = started.elapsed()
        if self._may_have_orphans():
            self.leaks()  # what tcaches that are gone held is free for every command, not only for those about leaks

    def _release(self) -> None:
        """Set the blocks in caches free, and make the allocators' own blocks their own."""
        watched = [chunk for report in self.reports for chunk in report["watched"]]
        first = runs.first_chunks(self.layout)
        found = caches.Candidates(watched, self._thread_words(), first)
        self.caches = caches.release(self.words, self.index, self.arenas, found)
        self.jemalloc_caches = [
            jemalloc.Caches(self.words, self.target, one, self.roots.thread_pointers, self.index)
            for one in self.jemallocs
        ]
        # A tcache of glibc lies in a chunk of its own (malloc.c, tcache_init).
        self.index.own(self.caches.tcaches, False)
        structures = [at for recording in self.records.recordings for at in recording.structures]
        if structures:
            self.index.own(structures, True)

    # -- finding it -----------------------------------------------------------------------------------------------

    @property
    def found(self) -> bool:
        """Return whether the process ever used an allocator that dmods knows."""
        return bool(self.layout.runs or self.jemallocs or self.walked)

    @property
    def bytes(self) -> int:
        """Return the bytes in glibc's chunks, in jemalloc's extents that are in use, and in others' blocks."""
        extents = (size for one in self.jemallocs for *_, size, _slots, _live in one.extents.classes())
        others = sum(heap.slots.usable_bytes for heap in self.walked)
        return sum(end - start for start, end, *_ in self.layout.runs) + sum(extents) + others

    def _index(self) -> _engine.Heap:
        with _bar("reading the heap", self.bytes) as progress:
            return _engine.Heap(
                self.target.image(),
                self.words.size,
                self.layout.runs,
                self.roots.dead,
                caches.watched(self.words.size),
                engine_threads(),
                progress,
                [(one.extents, jemalloc.first_arena(order)) for order, one in enumerate(self.jemallocs)],
                [(heap.slots, heap.arena) for heap in self.walked],
                [self.collector.links] if self.collector.links is not None else [],
                self.unused,
            )

    def _thread_words(self) -> Iterator[int]:
        """Yield the words near each thread pointer that may point into the heap.

        One of them is the thread's ``tcache``.
        """
        name, image, size = self.target.arch.thread_pointer, self.target.image(), self.words.size
        bases = (thread.registers.get(name, 0) for thread in self.target.threads())
        near = Ranges((max(0, base - _TLS_REACH), base + _TLS_REACH) for base in bases)
        if not self.layout.runs:
            return
        low, high = min(run[0] for run in self.layout.runs), max(run[1] for run in self.layout.runs)
        for start, end in near:
            for first in range(start, end, _TLS_STEP):
                part = [(first, min(first + _TLS_STEP, end))]
                for at in _engine.find_pointers(image, part, size, [(low, high)], _TLS_STEP)[0]:
                    yield from self.words.many(at, 1) or ()

    def dump_notes(self) -> list[str]:
        """Return the notes about the dump and the moment it was taken. Notes about damage are not among them."""
        out = [
            f"the arena at {arena.address:#x} was locked: a thread was inside malloc, "
            "a block in its hands may be reported"
            for arena in self.arenas
            if arena.locked
        ]
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
        walked = [heap.name for heap in self.walked]
        foreign = foreign_malloc(self.target)
        notes = [foreign_note(foreign)] if foreign is not None else []
        out.extend(unwalked_heap_notes(self.target, walked, partial(other_anonymous_bytes, self.target), notes))
        return out

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
        for one, own in zip(self.jemallocs, self.jemalloc_caches):
            self.notes.extend(own.notes(one))
        bad = sum(damaged_chunks(report, self.words.size) for report in self.reports)
        if bad:
            self.notes.append(f"{bad} damaged chunks: `heapcheck` tells which, and who may have done it")
        absent = sum(self.is_unseen(where) for _list, _what, where in self.caches.problems)
        if len(self.caches.problems) > absent:
            lists = len(self.caches.problems) - absent
            self.notes.append(f"{lists} free lists are damaged: freed blocks beyond may be reported as leaked")
        if absent:
            self.notes.append(
                f"{absent} free lists lead to memory that is not in the dump: freed blocks beyond may be reported as "
                "leaked"
            )

    # -- free lists -----------------------------------------------------------------------------------------------

    def bins(self) -> bins.Bins:
        """Return the chunks in the arenas' bins, and the problems of the bins. They are followed once."""
        if self._bins is None:
            free = sum(report["free_chunks"] for report in self.reports)
            with _bar("following the bins", free) as progress:
                self._bins = bins.follow(self.words, self.index, self.arenas, progress)
            if self.unseen or any(malloc.gaps for malloc in self.layout.mallocs):
                seen_problems(self._bins, self.is_unseen, self.arenas_unseen(), self._chunk_end)
        return self._bins

    def is_unseen(self, address: int) -> bool:
        """Return whether a chunk may be at the address that the dump lacks, or that belongs to an arena it lacks."""
        if address in self.unseen:
            return True
        mapping = mapping_at(self.target, address)
        if mapping is None or "w" not in mapping.flags or address in self.layout.owned:
            return False
        return any(malloc.gaps for malloc in self.layout.mallocs) or self.words.at(address) is None

    def is_missing(self, address: int) -> bool:
        """Return whether a truncated dump promises the memory at the address, and lacks it."""
        return any(start <= address < end for start, end in self.target.missing)

    def _chunk_end(self, chunk: int) -> Optional[int]:
        row = self.index.find(chunk + 2 * self.words.size)
        return row[0] + row[1] if row is not None else None

    def arenas_unseen(self) -> set[int]:
        """Return the numbers of the arenas of which the dump lacks a part."""
        runs_ = zip(self.index.runs(), self.reports)
        return {arena for (_, _, _, arena, _), report in runs_ if report["missing"]}

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
            # A fork leaves the tcaches of the other threads behind. They belong to malloc and are no leaks of the
            # program.
            values = self.roots.values + self.caches.tcaches
            values += [address for heap in self.walked for address in heap.own]
            self.code_words = code_words(self.target, self.owned, self.roots)
            values += sorted({value for _at, value in self.code_words})
            searched = list(Ranges([*ranges, *self.owned]))
            values += jump_buffer_values(self.target, searched, self.owned, self._is_live)
            vectors = self._vector_values()
            self.mark_sources = (ranges, values + vectors)
            candidates, reached, by_vectors = self._mark(ranges, values, vectors, progress)
            totals = self.index.find_leaks(progress)
            if self._release_orphans():
                candidates, reached, by_vectors = self._mark(ranges, values, vectors, progress)
                totals = self.index.find_leaks(progress)
            leaked = ((block.address, block.size) for block in self.blocks(*_LEAKED))
            garbage = self.collector.garbage(leaked, self.unused[0] if self.unused else None)
            self.garbage = find_garbage(self.index, self.walked)
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
        if self.unaligned:
            self.index.take_unaligned(self.roots.dead)
        else:
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
        if self.unaligned:
            for thread in self.target.threads():
                found.update(unaligned_values(thread.vectors or {}, self.words.size))
        parts = list(self.owned)
        if not parts:
            return []
        low, high = parts[0][0], parts[-1][1]
        return sorted(value for value in found if low <= value < high and self.index.find(value) is not None)

    def _patterns(self) -> list[Pattern]:
        pairs = zip(self.jemalloc_caches, self.jemallocs)
        return [pattern for own, one in pairs for pattern in own.patterns(self.words, one, self.index)]

    def _may_have_orphans(self) -> bool:
        """Return whether a block of the program has the size of a tcache's arrays. Few processes have such a block."""
        sizes: dict[int, set[int]] = {}
        for pattern in self._patterns():
            sizes.setdefault(pattern.arena, set()).add(pattern.size)
        return any(
            size in wanted and live for arena, wanted in sizes.items() for size, live, *_ in self.index.sizes(arena)
        )

    def _release_orphans(self) -> bool:
        """Set the blocks free that were in tcaches of jemalloc which are gone. Return whether there are such tcaches.

        Only unreachable blocks can be such a tcache's. So this begins with the heap marked. It ends with a new index.
        """
        orphans = find_orphans(self.words, self.index, self._patterns(), self._leaked)
        if not orphans.arrays:
            return False
        self.index = self._index()
        self._release()
        self.index.release(orphans.doubtful)
        self.doubtful.update(dict.fromkeys(orphans.doubtful, LOST_CACHE))
        self.index.own(orphans.arrays + orphans.tickers, False)
        return True

    def _leaked(self) -> Iterator[tuple[int, int, Optional[int]]]:
        return ((block.address, block.size, block.arena) for block in self.blocks(DIRECT, INDIRECT))

    def is_garbage(self, block: Block) -> bool:
        """Return whether a garbage collector will free the block: nothing reaches it. False before ``leaks()``."""
        return any(block.address in one for one in self.garbage)

    def root_ranges(self) -> list[tuple[int, int]]:
        """Return the root ranges without jemalloc's thread-local memory and without false pointers.

        Memory of other allocators that may be in use is among them.
        """
        ranges = self.roots.ranges
        for heap in self.walked:
            ranges = [*ranges, *Ranges(self.roots.dead).without(heap.roots(self.target, self.unaligned))]
        for jemalloc_, caches_ in zip(self.jemallocs, self.jemalloc_caches):
            ranges = caches_.own_memory(jemalloc_).without(ranges)
        search = Search(
            self.target,
            self.owned,
            ranges,
            self._block_of,
            self.layout.mallocs,
            self.jemallocs,
            [key for key in self.caches.keys if key not in self.caches.tcaches],
        )
        return without_false_pointers(search)

    def _block_of(self, address: int) -> Optional[int]:
        row = self.index.find(address)
        return row[0] if row is not None else None

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
            start = batch[-1][0] + 1

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

        The ranges may have any order and do not overlap. All of memory is read once.
        """
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        ranges = readable_ranges(self.target, self.mappings)
        with _bar("searching for pointers", sum(end - start for start, end in ranges)) as told:
            found = self._pointers(ranges, [wanted[place] for place in order], most, told)
        links = self.collector.links
        if links is not None:  # every object that Python's collector tracks points to its neighbours in a list
            found = [[at for at in addresses if at not in links] for addresses in found]
        for unused in self.unused:
            found = [[at for at in addresses if at not in unused] for addresses in found]
        return [addresses for _place, addresses in sorted(zip(order, found))]

    def _pointers(
        self,
        ranges: list[tuple[int, int]],
        wanted: list[tuple[int, int]],
        most: int,
        told: Optional[Callable[[int], object]] = None,
    ) -> list[list[int]]:
        return _engine.find_pointers(self.target.image(), ranges, self.words.size, wanted, most, told)


@cached
def find_heap(target: Target) -> ProcessHeap:
    """Return the heap of the target, computed once for each state of the target."""
    return ProcessHeap(target)


def find_heap_as(target: Target, unaligned: bool, stale_links: bool) -> ProcessHeap:
    """Return the heap of the target as ``ProcessHeap`` reads it with these arguments. It is computed once, too."""
    return _HEAPS[unaligned, stale_links](target)


_HEAPS = {
    (False, False): find_heap,
    (True, False): cached(partial(ProcessHeap, unaligned=True)),
    (False, True): cached(partial(ProcessHeap, stale_links=True)),
    (True, True): cached(partial(ProcessHeap, unaligned=True, stale_links=True)),
}


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
