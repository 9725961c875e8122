"""glibc's malloc in a process heap: its chunks, the lists of free ones, and the parts that the dump lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods import _engine
from dmods.allocators.glibc import runs
from dmods.allocators.glibc.bins import Bins, follow
from dmods.allocators.glibc.caches import Caches, Candidates, watched
from dmods.allocators.glibc.caches import release as release_lists
from dmods.allocators.glibc.half_done import NOTHING, HalfDone, half_done
from dmods.allocators.glibc.structures import Arena
from dmods.allocators.glibc.unseen import damaged_chunks, seen_problems, unseen_parts
from dmods.allocators.numbers import NO_ARENA, reserve
from dmods.allocators.protocol import Building, Heap, Process
from dmods.allocators.vocabulary import Chunks, Walk
from dmods.base.dataclass import dataclass, field
from dmods.base.progress import Progress
from dmods.base.ranges import Ranges
from dmods.modules.elf import PAGE
from dmods.process.mappings import mapping_at

NAME = "glibc malloc"
_TLS_REACH = 16 << 10  # bytes around a thread pointer where its pointer to the tcache is searched
_TLS_STEP = 1 << 20  # bytes that are searched at once

reserve(0, lambda number: "main" if number == 0 else str(number))
reserve(NO_ARENA, lambda _number: "mmapped")


@dataclass
class State(Heap):
    """All copies of glibc's malloc in the process."""

    layout: runs.Layout = field(default_factory=lambda: runs.Layout([], PAGE))
    caches: Caches = field(default_factory=Caches)
    unseen: Ranges = field(default_factory=Ranges)  # parts of it that the dump lacks
    found_bins: Optional[Bins] = None
    found_begun: Optional[HalfDone] = None

    @property
    def all(self) -> list[Arena]:
        """Return the arenas. An arena's number is its place."""
        return self.layout.arenas

    @property
    def is_used(self) -> bool:
        """Return whether there are chunks."""
        return bool(self.layout.runs)

    @property
    def has_headers(self) -> bool:
        """Return True: each chunk has a header."""
        return True

    @property
    def bytes(self) -> int:
        """Return the bytes in all stretches of chunks, and those beside them: alignment, and headers of arenas."""
        return sum(end - start for start, end, *_ in self.layout.runs) + self.layout.beside

    def walks(self) -> list[Walk]:
        """Return the stretches of chunks."""
        return [Chunks(self.layout.runs, watched(self.all[0].word))] if self.layout.mallocs else []

    def homes(self) -> list[int]:
        """Return the first arena of each malloc. It is a variable of the module."""
        return [malloc.arenas[0].address for malloc in self.layout.mallocs]

    def attached(self, process: Process) -> Heap:
        """Return a copy for a process heap."""
        found = super().attached(process)
        assert isinstance(found, State)
        found.found_bins = found.found_begun = None
        return found

    @property
    def begun(self) -> HalfDone:
        """Return what malloc had begun to change when it ended the process. Only a heap with anomalies is asked."""
        if self.found_begun is None:
            suspicious = any(each[0] == "prev_size" for report in self.process.reports for each in report["anomalies"])
            self.found_begun = half_done(self.process, self.homes()) if suspicious else NOTHING
        return self.found_begun

    # -- free lists -----------------------------------------------------------------------------------------------

    def release(self, building: Building) -> None:
        """Set the chunks in tcaches and fastbins free. A tcache lies in a chunk of its own (malloc.c, tcache_init)."""
        words, reports = building.words, building.reports
        self.unseen = unseen_parts(reports, words.size)
        alike = [chunk for report in reports for chunk in report["watched"]]
        found = Candidates(alike, self._thread_words(building), runs.first_chunks(self.layout))
        self.caches = release_lists(words, building.engine, self.all, found)
        building.engine.own(self.caches.tcaches, False)

    def kept(self) -> list[int]:
        """Return the tcaches. A fork leaves those of the other threads behind; they are no leaks of the program."""
        return self.caches.tcaches

    def thread_caches(self) -> list[int]:
        """Return the tcaches. A thread makes its own when it allocates for the first time (malloc.c, tcache_init)."""
        return self.caches.tcaches

    def _thread_words(self, building: Building) -> Iterator[int]:
        """Yield the words near each thread pointer that may point into the heap.

        One of them is the thread's ``tcache``.
        """
        if not self.layout.runs:
            return
        target, words = building.target, building.words
        name, image, size = target.arch.thread_pointer, target.image(), words.size
        bases = (thread.registers.get(name, 0) for thread in target.threads())
        near = Ranges((max(0, base - _TLS_REACH), base + _TLS_REACH) for base in bases)
        low, high = min(run[0] for run in self.layout.runs), max(run[1] for run in self.layout.runs)
        for start, end in near:
            for first in range(start, end, _TLS_STEP):
                part = [(first, min(first + _TLS_STEP, end))]
                for at in _engine.find_pointers(image, part, size, [(low, high)], _TLS_STEP)[0]:
                    yield from words.many(at, 1) or ()

    @property
    def bins(self) -> Bins:
        """Return the chunks in the arenas' bins, and the problems of the bins. They are followed once."""
        if self.found_bins is None:
            index, words = self.process.engine, self.process.words
            free = sum(report["free_chunks"] for report in self.process.reports)
            with Progress("following the bins") as bar:
                found = follow(words, index, self.all, lambda done: bar.update(done, free))
            if self.unseen or any(malloc.gaps for malloc in self.layout.mallocs):
                seen_problems(found, self.is_unseen, self.arenas_unseen(), self._chunk_end)
            if any(problem.fault == "unlisted" for problem in found.problems):
                kept = half_done(self.process, self.homes()).without(found.problems, words)
                found.problem_count -= len(found.problems) - len(kept)
                found.problems = kept
            self.found_bins = found
        return self.found_bins

    def is_unseen(self, address: int) -> bool:
        """Return whether a chunk may be at the address that the dump lacks, or that belongs to an arena it lacks."""
        if address in self.unseen:
            return True
        mapping = mapping_at(self.process.target, address)
        if mapping is None or "w" not in mapping.flags or address in self.layout.owned:
            return False
        return any(malloc.gaps for malloc in self.layout.mallocs) or self.process.words.at(address) is None

    def _chunk_end(self, chunk: int) -> Optional[int]:
        row = self.process.engine.find(chunk + 2 * self.process.words.size)
        return row.address + row.size if row is not None else None

    def arenas_unseen(self) -> set[int]:
        """Return the numbers of the arenas of which the dump lacks a part."""
        runs_ = zip(self.process.engine.runs(), self.process.reports)
        return {arena for (_, _, _, arena, _), report in runs_ if report["missing"]}

    # -- notes ----------------------------------------------------------------------------------------------------

    def moment_notes(self) -> list[str]:
        """Return a note for each arena that was locked."""
        return [
            f"the arena at {arena.address:#x} was locked: a thread was inside malloc, "
            "and the block that it works on may be reported"
            for arena in self.all
            if arena.locked
        ]

    def damage_notes(self) -> list[str]:
        """Return how many chunks and free lists are damaged."""
        out = []
        bad = sum(damaged_chunks(report, self.process.words.size, self.begun) for report in self.process.reports)
        if bad:
            out.append(f"{bad} damaged chunks: `heapcheck` tells which, and who may have done it")
        absent = sum(self.is_unseen(where) for _list, _what, where in self.caches.problems)
        if len(self.caches.problems) > absent:
            lists = len(self.caches.problems) - absent
            out.append(f"{lists} free lists are damaged: freed blocks beyond may be reported as leaked")
        if absent:
            out.append(
                f"{absent} free lists lead to memory that is not in the dump: freed blocks beyond may be reported as "
                "leaked"
            )
        return out

    @property
    def is_locked(self) -> bool:
        """Return whether an arena was locked."""
        return any(arena.locked for arena in self.all)
