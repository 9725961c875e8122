"""The process's heap: found, indexed, and, when asked, searched for leaks. Cached for as long as the process does not
move."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Callable, Optional

from dmods import _engine, allocators, mistakable, runtimes
from dmods import records as allocation_records
from dmods.glibc import bins, caches, runs
from dmods.glibc.arenas import sizes_kept
from dmods.jemalloc import heap as jemalloc
from dmods.jemalloc.find import breaks
from dmods.jemalloc.heap import is_arena
from dmods.kept import kept
from dmods.progress import Progress
from dmods.ranges import Ranges
from dmods.roots import Roots, readable
from dmods.roots import find as find_roots
from dmods.target import Target
from dmods.words import Words

LIVE, FREE, DIRECT, INDIRECT, OWN = 0, 1, 2, 3, 4
NO_HEAP = "no heap: the process used neither glibc's malloc nor a jemalloc, or its data is not in the dump"
_TLS_REACH = 16 << 10  # bytes around a thread pointer that are searched for the pointer to its tcache
_TLS_STEP = 1 << 20  # bytes of them that are searched at once
_BATCH = 65536
_LIBC_DATA = 64 << 10  # bytes around main_arena in which libc's other variables lie
_MOST_NUMBERS = 1 << 16


@dataclass(frozen=True)
class Block:
    """An allocation. ``size`` is malloc_usable_size; ``arena`` a number (``blocks.arena_name`` names it), None for
    glibc's blocks with a mapping of their own. ``single``: it has such a mapping, or an extent of its own."""

    address: int
    size: int
    state: int
    arena: Optional[int]
    single: bool
    kept_count: int  # for a direct leak: blocks and bytes that it keeps alive besides itself
    kept_bytes: int

    @property
    def allocator(self) -> str:
        return "jemalloc" if self.arena is not None and is_arena(self.arena) else "glibc malloc"

    @property
    def cache(self) -> str:
        """As libumem would name where it comes from."""
        return f"{self.allocator.split()[-1]}-{self.size}"

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True)
class Group:
    """Direct leaks of one size, from one kind of allocator."""

    size: int
    allocator: str
    single: bool
    count: int
    first: int  # lowest address
    kept_count: int
    kept_bytes: int

    @property
    def cache(self) -> str:
        return f"{self.allocator.split()[-1]}-{self.size}"


@dataclass(frozen=True)
class Leaks:
    """The totals of a search, in usable bytes, and its figures."""

    direct_count: int
    direct_bytes: int
    indirect_count: int
    indirect_bytes: int
    groups: list[Group]
    root_bytes: int
    root_candidates: int
    reached: int
    seconds: float
    cpu_seconds: float


class ProcessHeap:
    """Made by :func:`of`. ``notes`` say what is uncertain."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.notes: list[str] = []
        self.words = Words(target.image(), target.arch.word)
        started = _Clock()
        self.records = allocation_records.of(target)
        self.mappings = allocators.programs(target)
        survey = allocators.survey(target)
        self.layout = survey.glibc
        self.arenas = self.layout.arenas
        self.jemallocs = survey.jemallocs
        self.owned = survey.owned
        self.notes.extend(survey.notes)
        self.roots: Roots = find_roots(target, self.owned, self.records)
        self.index = self._index()
        self.reports = self.index.reports()
        watched = [chunk for report in self.reports for chunk in report["watched"]]
        first = runs.first_chunks(self.layout)
        found = caches.Candidates(watched, self._thread_words(), first)
        self.caches = caches.release(self.words, self.index, self.arenas, found)
        self.jemalloc_caches = [
            jemalloc.Caches(self.words, target, one, self.roots.thread_pointers, self.index) for one in self.jemallocs
        ]
        structures = [at for recording in self.records.recordings for at in recording.structures]
        if structures:
            self.index.own(structures, True)
        for one, own in zip(self.jemallocs, self.jemalloc_caches):
            self.roots.ranges = own.own_memory(one).without(self.roots.ranges)
        self._note_damage()
        self._leaks: Optional[Leaks] = None
        self._bins: Optional[bins.Bins] = None
        self._build = started.elapsed()

    # -- finding it -----------------------------------------------------------------------------------------------

    @property
    def found(self) -> bool:
        """Whether the process ever used an allocator that is known."""
        return bool(self.layout.runs or self.jemallocs)

    @property
    def bytes(self) -> int:
        """Of chunks, and of extents in use."""
        extents = (size for one in self.jemallocs for *_, size, _slots, _live in one.extents.classes())
        return sum(end - start for start, end, *_ in self.layout.runs) + sum(extents)

    def _index(self) -> _engine.Heap:
        with _bar("reading the heap", self.bytes) as progress:
            return _engine.Heap(
                self.target.image(),
                self.words.size,
                self.layout.runs,
                self.roots.dead,
                caches.watched(self.words.size),
                threads(),
                progress,
                [(one.extents, jemalloc.first_arena(order)) for order, one in enumerate(self.jemallocs)],
            )

    def _thread_words(self) -> Iterator[int]:
        """The words near each thread pointer that may point into the heap: one of them is the thread's ``tcache``."""
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
        """What speaks of the dump and the moment it was taken, not of damage."""
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
        out.extend(runtimes.notes(self.target))
        return out

    def _missing_bare(self) -> int:
        """Bytes of slabs and extents that the dump lacks. (What was never touched, a kernel leaves out: whole
        mappings.)"""
        if not self.index.missing:
            return 0
        dumped = Ranges((m.start, m.end) for m in self.target.mappings() if m.dumped)
        return sum(end - start for part in self.index.missing for start, end in dumped.within(*part))

    def _note_damage(self) -> None:
        self.notes.extend(self.dump_notes())
        for one, own in zip(self.jemallocs, self.jemalloc_caches):
            self.notes.extend(own.notes(one))
        bad = sum(report["anomaly_count"] for report in self.reports)
        if bad:
            self.notes.append(f"{bad} damaged chunks: `heapcheck` tells which, and who may have done it")
        if self.caches.problems:
            self.notes.append(
                f"{len(self.caches.problems)} free lists are damaged: freed blocks beyond may be reported as leaked"
            )

    # -- free lists -----------------------------------------------------------------------------------------------

    def bins(self) -> bins.Bins:
        """What hangs in the arenas' bins, and what is wrong with them. Followed once."""
        if self._bins is None:
            free = sum(report["free_chunks"] for report in self.reports)
            with _bar("following the bins", free) as progress:
                self._bins = bins.follow(self.words, self.index, self.arenas, progress)
        return self._bins

    # -- leaks ----------------------------------------------------------------------------------------------------

    @property
    def leaks_known(self) -> bool:
        """Whether ``leaks()`` has run: states DIRECT and INDIRECT are told only then."""
        return self._leaks is not None

    def leaks(self) -> Leaks:
        """The unreachable blocks. Computed once."""
        if self._leaks is None:
            self._leaks = self._find_leaks()
        return self._leaks

    def _find_leaks(self) -> Leaks:
        started = _Clock()
        ranges = self._root_ranges()
        for report in self.reports:
            ranges.extend(report["gaps"])
            ranges.extend(report["lost"])
        total = sum(end - start for start, end in ranges)
        with _bar("marking", 0) as progress:  # how much the roots lead to is what it finds out
            # A fork leaves the tcaches of the other threads behind: malloc's own, no leaks of the program.
            values = self.roots.values + self.caches.tcaches
            candidates, reached = self.index.mark(ranges, values, progress)
            direct_count, direct_bytes, indirect_count, indirect_bytes = self.index.find_leaks(progress)
        seconds, cpu = started.elapsed()
        return Leaks(
            direct_count,
            direct_bytes,
            indirect_count,
            indirect_bytes,
            [_group(row) for row in self.index.groups()],
            total,
            candidates,
            reached,
            seconds + self._build[0],
            cpu + self._build[1],
        )

    def _root_ranges(self) -> list[tuple[int, int]]:
        """The roots without glibc's random numbers, which on 32-bit machines often look like pointers: ``tcache_key``
        in its data, and its guards anywhere. (Many keys are found in free blocks; only one that leads to a block is
        worth the search.) And without jemalloc's notes of the program's break, malloc's own of sizes, halves of
        pointers on the stacks, and sizes of stacks: these are told from pointers by not leading to where a block
        begins."""
        keys = [key for key in self.caches.keys if key not in self.caches.tcaches]
        main = [(max(0, arena.address - _LIBC_DATA), arena.end + _LIBC_DATA) for arena in self.arenas if arena.main]
        libcs = Ranges(main)
        data = [part for start, end in self.roots.ranges for part in libcs.within(start, end)] if keys else []
        sought = [(key, data) for key in keys]
        sought += [(guard, self.roots.ranges) for guard in mistakable.secrets(self.target)]
        hidden: list[tuple[int, int]] = []
        for number, where in sought:
            if self.index.find(number) is not None:
                found = self._pointers(where, [(number, number + 1)], _MOST_NUMBERS)[0]
                hidden.extend((address, address + self.words.size) for address in found)
        numbers = [breaks(self.words, one) for one in self.jemallocs]
        numbers += [sizes_kept(self.words, one.parameters) for one in self.layout.mallocs if one.parameters is not None]
        numbers += [mistakable.halves(self.target, self.owned), mistakable.stack_sizes(self.target, self.owned)]
        for address, value in chain(*numbers):
            if (row := self.index.find(value)) is not None and row[0] != value:
                hidden.append((address, address + self.words.size))
        return Ranges(hidden).without(self.roots.ranges) if hidden else list(self.roots.ranges)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def blocks(self, *states: int) -> Iterator[Block]:
        """Every block in one of the states (DIRECT and INDIRECT need ``leaks()`` first), by address."""
        start = 0
        while True:
            batch = self.index.blocks(list(states), start, _BATCH)
            yield from (_block(row) for row in batch)
            if len(batch) < _BATCH:
                return
            start = batch[-1][0] + 1

    def block_at(self, address: int) -> Optional[Block]:
        """The block that ``address`` points into, free or not."""
        row = self.index.find(address)
        return _block(row) if row is not None else None

    def referrers(self, block: Block, most: int, start_only: bool = False) -> list[int]:
        """Addresses of up to ``most`` words anywhere in memory that point into the block, or with ``start_only`` to its
        first byte (dead memory and free blocks included)."""
        end = block.address + 1 if start_only else block.end
        return self.pointers([(block.address, end)], most)[0]

    def pointers(self, wanted: list[tuple[int, int]], most: int) -> list[list[int]]:
        """For each of the ranges (in any order, not overlapping): addresses of up to ``most`` words anywhere in memory
        that point into it. All of memory is gone through, once."""
        order = sorted(range(len(wanted)), key=wanted.__getitem__)
        ranges = readable(self.target, self.mappings)
        with _bar("searching for pointers", sum(end - start for start, end in ranges)) as told:
            found = self._pointers(ranges, [wanted[place] for place in order], most, told)
        return [addresses for _place, addresses in sorted(zip(order, found))]

    def _pointers(
        self,
        ranges: list[tuple[int, int]],
        wanted: list[tuple[int, int]],
        most: int,
        told: Optional[Callable[[int], object]] = None,
    ) -> list[list[int]]:
        return _engine.find_pointers(self.target.image(), ranges, self.words.size, wanted, most, told)


def _block(row: tuple[int, int, int, int, bool, int, int]) -> Block:
    address, size, state, arena, single, count, kept = row
    return Block(address, size, state, None if arena == runs.NO_ARENA else arena, single, count, kept)


def _group(row: tuple[int, bool, bool, int, int, int, int]) -> Group:
    size, chunks, single, count, first, kept_count, kept_bytes = row
    return Group(size, "glibc malloc" if chunks else "jemalloc", single, count, first, kept_count, kept_bytes)


@kept
def of(target: Target) -> ProcessHeap:
    """The heap of the target: computed once for each state of it."""
    return ProcessHeap(target)


def threads() -> int:
    """How many threads the engine uses: DMODS_THREADS, or as many as there are processors (four at most)."""
    asked = os.environ.get("DMODS_THREADS", "")
    return max(1, int(asked)) if asked.isdigit() else min(4, os.cpu_count() or 1)


class _Clock:
    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def elapsed(self) -> tuple[float, float]:
        """(wall, CPU) seconds."""
        return time.monotonic() - self._wall, time.process_time() - self._cpu


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], object]]:
    with Progress(label) as bar:
        yield lambda done: bar.update(done, total)
