"""One mimalloc of a process: what its memory is, who holds a free block, what is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.protocol import Heap
from dmods.allocators.vocabulary import Problem
from dmods.base.dataclass import dataclass

FAULTS = {
    "link": "a free list leads to no block of its page",
    "twice": "a block is in free lists twice: it was freed twice, or a list is a cycle",
    "count": "the page's count of blocks in use does not fit its free lists",
    "page": "the page's fields contradict each other",
    "overlap": "the page lies across another one",
    "cookie": "the cookie of the segment is not that of its address: its header was overwritten",
    "slices": "the slices of the segment do not follow each other",
    "missing": "the dump does not have what a free list leads to",
}
#: Faults after which some freed block may be taken for one in use.
_UNKNOWN_FREE = ("link", "twice", "missing", "count")

_LISTS = (
    "on the free list of its page",
    "freed by its thread, on the local free list of its page",
    "freed by another thread, not yet collected",
    "freed by another thread, on the delayed list of its heap",
)


@dataclass
class MimallocHeap(Heap):
    """One mimalloc. `read` are its pages, `image` the memory that they were read from."""

    read: Optional[_engine.Mimalloc] = None
    image: Optional[_engine.Image] = None

    def page(self, address: int) -> Optional[int]:
        """Return the address of the page whose blocks hold the address, or None."""
        found = self.read.page_at(address) if self.read is not None else None
        return found[0] if found is not None else None

    def where(self, address: int) -> Optional[str]:
        """Return what an address that is in no block is."""
        if self.read is None:
            return None
        page = self.read.page_at(address)
        if page is not None:
            _page, start, block, capacity, reserved, _used, _thread = page
            index = (address - start) // block
            if index >= capacity:
                return f"in a page of {block}-byte blocks, behind the {capacity} of {reserved} that were made so far"
            held = self.holder(start + index * block)
            return f"in a free block of {block} bytes, {held}" if held is not None else None
        what = "segment" if self.read.segmented else "arena"
        for start, end, _thread in self.read.regions:
            if start <= address < end:
                return f"in the {what} at {start:#x}, in no page that is in use"
        return None

    def holder(self, address: int) -> Optional[str]:
        """Return which list has the free block."""
        if self.read is None or self.image is None:
            return None
        place = self.read.list_of(self.image, address)
        return _LISTS[place] if place is not None else None

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Return the memory in which no block was made so far."""
        return self.read.free_memory() if self.read is not None else ()

    def statistics(self) -> list[tuple[str, int]]:
        """Return the sums over the pages."""
        if self.read is None:
            return []
        pages, abandoned, free, local, threads, delayed, unmade = self.read.counts()
        regions = self.read.regions
        return [
            ("segments" if self.read.segmented else "arenas", len(regions)),
            ("bytes of segments" if self.read.segmented else "bytes of arenas", sum(r[1] - r[0] for r in regions)),
            ("pages", pages),
            ("pages without an owner", abandoned),
            ("blocks on free lists", free + local),
            ("blocks freed by other threads", threads + delayed),
            ("bytes in which no block was made yet", unmade),
        ]


def made(read: _engine.Mimalloc, image: _engine.Image, serves_malloc: bool) -> MimallocHeap:
    """Return the heap of pages that were read."""
    heap = MimallocHeap("mimalloc", read.owned, read.slots, serves_malloc=serves_malloc, read=read, image=image)
    heap.leaves_links = not read.coded
    heap.own.extend(read.own)
    heap.problems.extend(Problem(at, FAULTS[fault]) for fault, at in read.faults)
    if read.fault_count:
        kinds = sorted({fault for fault, _at in read.faults})
        text = f"mimalloc: {read.fault_count} of its pages and lists contradict themselves ({', '.join(kinds)})"
        if any(kind in _UNKNOWN_FREE for kind in kinds):
            text += ": freed blocks may be reported as leaked"
        heap.notes.append(f"{text}; `heapcheck` tells which")
    if read.changing:
        heap.notes.append(
            f"mimalloc: the count of {read.changing} pages is off by one, as while a thread is inside malloc or free: "
            "a block of each may be in the wrong state"
        )
    if read.no_delayed:
        heap.notes.append(
            "mimalloc: the lists of blocks that other threads freed were not recognized: such blocks may be reported "
            "as leaked"
        )
    if read.absent:
        heap.notes.append(f"mimalloc: the blocks of {read.absent} pages are not in the dump: they are not known")
    return heap
