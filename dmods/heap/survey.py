"""Find a process's allocators and their memory: glibc's malloc always, others where they are found."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.allocators.glibc import runs
from dmods.allocators.glibc.arenas import find_mallocs
from dmods.allocators.jemalloc.find import Jemalloc, find_jemallocs
from dmods.allocators.walked import Walked
from dmods.allocators.walkers import find_walked
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.recorded import find_recorded
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
    `walked` are the other allocators. One whose blocks only the auditor knows is among them.
    """

    glibc: runs.Layout
    jemallocs: list[Jemalloc]
    owned: Ranges
    notes: list[str]
    walked: Sequence[Walked] = ()


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
    others = find_walked(target, owned)
    walked = [*others.heaps]
    owned = _joined(owned, walked)
    if not any(heap.serves_malloc for heap in walked):
        recorded = find_recorded(target, allocation_records(target), owned)
        if recorded is not None:
            walked.append(recorded)
            owned = _joined(owned, [recorded])
    notes = [*glibc.notes, *jemallocs.notes, *(note for jemalloc in jemallocs.all for note in jemalloc.notes)]
    notes.extend(others.refusals)
    notes.extend(note for heap in walked for note in heap.notes)
    return Survey(glibc, jemallocs.all, owned, notes, walked)


def _joined(owned: Ranges, heaps: Sequence[Walked]) -> Ranges:
    return Ranges(sorted([*owned, *(part for heap in heaps for part in heap.owned)]))
