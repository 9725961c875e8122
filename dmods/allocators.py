"""Which allocators a process has, and what memory is theirs: glibc's malloc always, jemalloc where it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmods import records
from dmods.elf import PAGE
from dmods.glibc import arenas, runs
from dmods.jemalloc import find as jemallocs
from dmods.jemalloc.find import Jemalloc
from dmods.kept import kept
from dmods.ranges import Ranges
from dmods.roots import without
from dmods.target import AddressRange, Target
from dmods.words import Words


def programs(target: Target) -> Sequence[AddressRange]:
    """The mappings without the memory in which an auditor keeps its records."""
    return without(target.mappings(), records.of(target).own)


@dataclass(frozen=True)
class Survey:
    """``owned`` is all memory of allocators, in use or not: no roots. ``notes`` say what cannot be read."""

    glibc: runs.Layout
    jemallocs: list[Jemalloc]
    owned: Ranges
    notes: list[str]


@kept
def survey(target: Target) -> Survey:
    """Looks through the process's mappings once; a fraction of a second."""
    words, found = Words(target.image(), target.arch.word), jemallocs.of(target)
    owned = Ranges(part for one in found.all for part in one.owned)
    rest = without(programs(target), owned)
    hint = target.lookup("main_arena")
    mallocs = arenas.find(words, rest, hint.address if hint else None)
    glibc = runs.arrange(words, mallocs, rest, PAGE)
    for start, end in glibc.owned:
        owned.add(start, end)
    notes = [*glibc.notes, *found.notes, *(note for one in found.all for note in one.notes)]
    return Survey(glibc, found.all, owned, notes)
