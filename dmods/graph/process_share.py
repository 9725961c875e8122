"""The memory of a process, and the part of it that is the heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.owners import Owners
from dmods.heap.ledger import FREE_MEMORY, IN_USE, LEAKED, find_ledger
from dmods.heap.mapping_kinds import classify_mappings
from dmods.target import AddressRange

_DEEPEST = 64  # blocks above one, up to which it is looked for what keeps it


@dataclass(frozen=True)
class ProcessMemory:
    """The memory of a process, in bytes (``heap.ledger`` says what the words mean).

    ``own`` is what the process has touched. ``heap`` is the part in which dmods walks blocks, without free pages that
    were never touched. ``in_use`` are the blocks that roots hold or that leaked, and ``free`` is what the allocator has
    free. ``leaked_touched`` is the touched part of ``leaked``. ``untouched`` has the blocks in use with memory that was
    never touched: their addresses and these bytes.
    """

    own: int
    heap: int
    in_use: int
    leaked: int
    leaked_touched: int
    free: int
    untouched: Sequence[tuple[int, int]] = ()
    largest: Optional[AddressRange] = None  # the largest anonymous mapping without blocks

    def share(self, size: int, untouched: int = 0) -> float:
        """Return which part of the process's own memory so many bytes are, if so many of them were never touched."""
        return max(0, size - untouched) / max(self.own, size - untouched, 1)

    def untouched_in(self, owners: Owners, scope: tuple[str, int]) -> int:
        """Return how many bytes were never touched of the blocks in a set of roots, or below a block."""
        kind, number = scope
        total = 0
        for address, size in self.untouched:
            found = owners.heap.index.owners_above(address, _DEEPEST)
            if found is None:
                continue
            above, set_ = found
            if set_ == number if kind == "set" else any(block[0] == number for block in above):
                total += size
        return total


def process_memory(owners: Owners) -> ProcessMemory:
    """Return the memory of the process."""
    ledger = find_ledger(owners.target)
    largest = None
    for part, kind in classify_mappings(owners.target):
        if kind == "anon" and "w" in part.flags and (largest is None or part.size > largest.size):
            largest = part
    leaked, pages = ledger.use(LEAKED), ledger.free_pages
    return ProcessMemory(
        ledger.touched,
        ledger.heap - pages.untouched,
        ledger.use(IN_USE).bytes + leaked.bytes,
        leaked.bytes,
        leaked.touched,
        ledger.use(FREE_MEMORY).bytes - pages.untouched,
        ledger.blocks,
        largest,
    )
