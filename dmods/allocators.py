"""Which allocators a process has, and what memory is theirs: glibc's malloc always, jemalloc where it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmods.elf import PAGE
from dmods.glibc import arenas, runs
from dmods.jemalloc import find as jemallocs
from dmods.jemalloc.find import Jemalloc
from dmods.ranges import Ranges
from dmods.roots import without
from dmods.target import AddressRange, Target
from dmods.words import Words


@dataclass(frozen=True)
class Survey:
    """``owned`` is all memory of allocators, in use or not: no roots. ``notes`` say what cannot be read."""

    glibc: runs.Layout
    jemallocs: list[Jemalloc]
    owned: Ranges
    notes: list[str]


def survey(target: Target, words: Words, mappings: Sequence[AddressRange]) -> Survey:
    """Looks through the process's ``mappings``; a fraction of a second."""
    found = jemallocs.of(target)
    owned = Ranges(part for one in found.all for part in one.owned)
    rest = without(mappings, owned)
    hint = target.lookup("main_arena")
    mallocs = arenas.find(words, rest, hint.address if hint else None)
    glibc = runs.arrange(words, mallocs, rest, PAGE)
    for start, end in glibc.owned:
        owned.add(start, end)
    notes = [*glibc.notes, *found.notes, *(note for one in found.all for note in one.notes)]
    return Survey(glibc, found.all, owned, notes)
