"""The heap of one mallocng."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.allocators.musl import NAME
from dmods.allocators.protocol import Heap
from dmods.allocators.vocabulary import Problem
from dmods.base.dataclass import dataclass, field

_SECRET = 8  # bytes, on every architecture
_FAULTS = {
    "area": "the area of metas at {at:#x} has another number of metas than {what}",
    "fields": "the meta at {at:#x} describes no group: its masks, its size class or its length contradict each other",
    "place": "the meta at {at:#x} names a group where no memory is",
    "back": "the group at {at:#x} does not point back to its meta at {what:#x}: its header is overwritten",
    "overlap": "the group at {at:#x} lies across the one at {what:#x}, or in a slot of it that is free",
    "header": "the header of the block at {at:#x} is overwritten: its size is not known, and counts as all of its slot",
    "reserved": "the end of the block at {at:#x} is overwritten: its size is not known, and counts as all of its slot",
    "check": "the first byte of the header of the block at {at:#x} is not 0: something wrote before the block",
    "overflow": "the block at {at:#x} was written beyond its end: the byte at {place:#x} is {byte:#04x}, not 0",
}


@dataclass
class MuslHeap(Heap):
    """The heap of one mallocng. ``read`` is what the engine read of it."""

    read: Optional[_engine.Mallocng] = field(default=None)

    def where(self, address: int) -> Optional[str]:
        """Return what memory of it in no block is: a group's header, a part of a slot, or its own structures."""
        found = self.read.at(address) if self.read is not None else None
        if found is None:
            return f"in the metas of {self.name}"
        group, slot, in_use = found
        kind = "mapping" if group.mapped and group.count == 1 else "group"
        slots = f"{group.count} x {group.stride} bytes, its meta at {group.meta:#x}"
        text = f"the {kind} at {group.start:#x} of {self.name} ({slots})"
        if not group.mapped and not group.freeable:
            text += ", memory that the dynamic linker gave away"
        if slot is None:
            return f"in {text}, in no slot"
        return f"in slot {slot} of {text}, {'beside its block' if in_use else 'free'}"

    def holder(self, address: int) -> Optional[str]:
        """Return which slot of which group the free block is."""
        found = self.read.at(address) if self.read is not None else None
        if found is None or found[1] is None:
            return None
        return f"slot {found[1]} of the group at {found[0].start:#x}"

    def statistics(self) -> list[tuple[str, int]]:
        """Return the figures of the groups. The bytes of slots in use count what the program did not ask for."""
        if self.read is None:
            return []
        _asked, used, _free, mapped, donated = self.read.figures()
        return [
            ("bytes of slots in use", used),
            ("bytes of mappings", mapped),
            ("bytes of memory that the dynamic linker gave away", donated),
            ("groups", self.read.groups),
            ("areas of metas", self.read.areas),
        ]


def make(read: _engine.Mallocng, context: int) -> MuslHeap:
    """Return the heap of the context at that address, with the notes about what the dump lacks and what is damaged."""
    # The context begins with a random number, which may look like a pointer (mallocng/meta.h, struct malloc_context).
    heap = MuslHeap(NAME, read.owned(), read.slots, dead=[(context, context + _SECRET)], read=read)
    missing_areas, missing = read.missing
    if not read.listed:
        heap.notes.append(
            f"{NAME}: the list of its areas is broken; {read.areas} areas were found by their first word instead"
        )
    if missing_areas:
        heap.doubts.append(f"{missing_areas} areas of {NAME} are not whole in the dump")
        heap.notes.append(
            f"{NAME}: {missing_areas} areas of metas are not whole in the dump: blocks that they describe are not known"
        )
    if missing:
        heap.notes.append(
            f"{NAME}: the headers of {missing} blocks are not in the dump: each counts as all of its slot"
        )
    if read.between:
        heap.notes.append(
            f"{NAME}: {len(read.between)} slots are neither free nor in use: threads were inside malloc or free. They "
            "count as free"
        )
    for fault, at, what in read.faults:
        text = _FAULTS[fault].format(at=at, what=what, place=what >> 8, byte=what & 255)
        heap.problems.append(Problem(at, text))
    if read.fault_count:
        many = "1 contradiction" if read.fault_count == 1 else f"{read.fault_count} contradictions"
        heap.notes.append(f"{NAME}: {many}: `heapcheck` tells which")
    return heap
