"""The memory of a process, and the part of it that is the heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.graph.owners.heap_owners import Owners
from dmods.heap.ledger import FREE_MEMORY, IN_USE, LEAKED, find_ledger
from dmods.heap.mapping_kinds import classify_mappings
from dmods.target import AddressRange

_DEEPEST = 64  # blocks above one, up to which it is looked for what keeps it


@dataclass(frozen=True)
class ProcessMemory:
    """The memory of a process, in bytes (``heap.ledger`` says what the words mean).

    ``own`` is what the process has touched. ``heap`` is the part in which dmods walks blocks, without free pages that
    were never touched. ``in_use`` are the blocks that roots hold or that leaked, and ``free`` is what the allocator has
    free. ``leaked_touched`` and ``free_touched`` are the touched parts. ``never_touched`` are bytes of blocks in use,
    leaked or not, that were never touched. ``untouched`` has the blocks with most of them: (address, such bytes).
    """

    own: int
    heap: int
    in_use: int
    leaked: int
    leaked_touched: int
    free: int
    free_touched: int
    untouched: Sequence[tuple[int, int]] = ()
    never_touched: int = 0
    largest: Optional[AddressRange] = None  # the largest anonymous mapping without blocks

    def share(self, size: int, untouched: int = 0) -> float:
        """Return which part of the process's own memory so many bytes are, if so many of them were never touched."""
        return max(0, size - untouched) / max(self.own, size - untouched, 1)

    def untouched_in(self, owners: Owners, scope: tuple[str, int]) -> int:
        """Return how many bytes were never touched of the blocks in a set of roots, or below a block.

        The blocks that are not listed have less each. Of these the scope has the same part as of the lesser half of
        those that are.
        """
        kind, number = scope
        total = less = of_less = 0
        middle = sorted(size for _address, size in self.untouched)[len(self.untouched) // 2] if self.untouched else 0
        for address, size in self.untouched:
            is_less = size <= middle
            of_less += size if is_less else 0
            found = owners.engine.above(address, _DEEPEST)
            if found is None:
                continue
            above, set_ = found
            if set_ == number if kind == "set" else any(block[0] == number for block in above):
                total += size
                less += size if is_less else 0
        rest = self.never_touched - sum(size for _address, size in self.untouched)
        return total + (rest * less // of_less if rest > 0 and of_less else 0)


def process_memory(owners: Owners) -> ProcessMemory:
    """Return the memory of the process."""
    ledger = find_ledger(owners.target)
    largest = None
    for part, kind in classify_mappings(owners.target):
        if kind == "anon" and "w" in part.flags and (largest is None or part.size > largest.size):
            largest = part
    in_use, leaked, pages = ledger.use(IN_USE), ledger.use(LEAKED), ledger.free_pages
    return ProcessMemory(
        ledger.touched,
        ledger.heap - pages.untouched,
        in_use.bytes + leaked.bytes,
        leaked.bytes,
        leaked.touched,
        ledger.use(FREE_MEMORY).bytes - pages.untouched,
        ledger.use(FREE_MEMORY).touched,
        ledger.blocks,
        in_use.untouched + leaked.untouched,
        largest,
    )
