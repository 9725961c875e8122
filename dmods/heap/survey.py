"""Find a process's allocators and their memory."""

from __future__ import annotations

from collections.abc import Sequence

from dmods.allocators.directory import find_heaps
from dmods.allocators.protocol import Heap
from dmods.base.cached import cached
from dmods.base.dataclass import dataclass
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.recorded import find_recorded
from dmods.process.mappings import subtract
from dmods.records.model import Records
from dmods.records.sources import allocation_records
from dmods.target import AddressRange, Target


def program_mappings(target: Target) -> Sequence[AddressRange]:
    """Return the mappings without the memory in which an auditor keeps its records."""
    return subtract(target.mappings(), allocation_records(target).own)


@dataclass(frozen=True)
class Survey:
    """The allocators of a process: the first stage of its heap.

    ``owned`` is all memory of the allocators, in use or not; it holds no roots. ``notes`` say what cannot be read. A
    heap whose blocks only the auditor knows is among ``heaps``.
    """

    target: Target
    records: Records
    heaps: Sequence[Heap]
    owned: Ranges
    notes: Sequence[str]

    @property
    def words(self) -> Words:
        """Return the words of the process."""
        return Words(self.target.image(), self.target.arch.word)

    @property
    def mappings(self) -> Sequence[AddressRange]:
        """Return the mappings without the memory in which an auditor keeps its records."""
        return program_mappings(self.target)


@cached
def survey(target: Target) -> Survey:
    """Return the allocators of the target. The search goes through its mappings once, in a fraction of a second."""
    records = allocation_records(target)
    found = find_heaps(target, records.own)
    recorded = find_recorded(target, records, found.heaps, found.owned)
    if recorded is None:
        return Survey(target, records, found.heaps, found.owned, found.notes)
    owned = Ranges(sorted([*found.owned, *recorded.owned]))
    return Survey(target, records, [*found.heaps, recorded], owned, [*found.notes, *recorded.notes])
