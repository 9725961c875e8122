"""Find a process's allocators and their memory: glibc's malloc always, jemalloc where it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmods.allocators.glibc import runs
from dmods.allocators.glibc.arenas import find_mallocs
from dmods.allocators.jemalloc.find import Jemalloc, find_jemallocs
from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.roots import subtract
from dmods.modules.elf import PAGE
from dmods.records.sources import allocation_records
from dmods.target import AddressRange, Target


def program_mappings(target: Target) -> Sequence[AddressRange]:
    """Return the mappings without the memory in which an auditor keeps its records."""
    return subtract(target.mappings(), allocation_records(target).own)


@dataclass(frozen=True)
class Survey:
    """The allocators of a process.

    `owned` is all memory of the allocators, in use or not; it holds no roots. `notes` say what cannot be read.
    """

    glibc: runs.Layout
    jemallocs: list[Jemalloc]
    owned: Ranges
    notes: list[str]


@cached
def survey(target: Target) -> Survey:
    """Return the allocators of the target. The search goes through its mappings once, in a fraction of a second."""
    words, jemallocs = Words(target.image(), target.arch.word), find_jemallocs(target)
    owned = Ranges(part for jemalloc in jemallocs.all for part in jemalloc.owned)
    rest = subtract(program_mappings(target), owned)
    hint = target.lookup("main_arena")
    mallocs = find_mallocs(words, rest, hint.address if hint else None)
    glibc = runs.arrange(words, mallocs, rest, PAGE)
    for start, end in glibc.owned:
        owned.add(start, end)
    notes = [*glibc.notes, *jemallocs.notes, *(note for jemalloc in jemallocs.all for note in jemalloc.notes)]
    return Survey(glibc, jemallocs.all, owned, notes)
