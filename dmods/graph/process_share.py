"""The memory of a process, and the part of it that is the heap."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.owners import FREE_, LEAKS, TOP_, Owners
from dmods.heap.mapping_kinds import classify_mappings
from dmods.target import AddressRange

_HEAP = ("heap", "arena")


@dataclass(frozen=True)
class ProcessMemory:
    """The memory of a process, in bytes.

    ``own`` is its memory apart from stacks and files: what malloc has, and other anonymous memory that can be written.
    ``heap`` is the part in which dmods walks blocks. ``in_use`` are the blocks that roots hold or that leaked, and
    ``free`` is what the allocator has free, the tops of its arenas included.
    """

    own: int
    heap: int
    in_use: int
    leaked: int
    free: int
    largest: Optional[AddressRange] = None  # the largest anonymous mapping without blocks

    def share(self, size: int) -> float:
        """Return which part of the process's own memory so many bytes are."""
        return size / max(self.own, size, 1)


def process_memory(owners: Owners) -> ProcessMemory:
    """Return the memory of the process."""
    outside, largest = 0, None
    owned = owners.heap.owned
    for part, kind in classify_mappings(owners.target):
        if kind in _HEAP or (kind == "anon" and "w" in part.flags):
            # An allocator may reserve a gigabyte at once, and never touch it: its blocks count, not its mappings.
            outside += part.size - sum(end - start for start, end in owned.within(part.start, part.end))
            if kind == "anon" and not any(owned.within(part.start, part.end)):
                largest = part if largest is None or part.size > largest.size else largest
    heap, leaked = owners.total, owners.sum_of(LEAKS)
    return ProcessMemory(outside + heap, heap, owners.live + leaked, leaked, owners.sum_of(FREE_, TOP_), largest)
