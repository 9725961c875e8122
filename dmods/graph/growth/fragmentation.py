"""Find that an allocator's memory grew far more than the blocks in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmods.allocators.directory import advice
from dmods.base.sizes import human_size
from dmods.finding import LIKELY, WASTE, Finding
from dmods.graph.growth.comparison import Memory
from dmods.heap.process_heap import ProcessHeap

_MUCH = 1 << 20  # bytes of growth that are worth a sentence


def fragmentation(memory: Sequence[Memory], heaps: Sequence[ProcessHeap]) -> list[Finding]:
    """Return a finding where the memory of the heap grew far more than the blocks in use, with advice; or nothing.

    An allocator that reserves its memory at once (mimalloc 3: a gigabyte) maps no more later. There the blocks that it
    made, free ones included, are what grew.
    """
    before, after = memory[0], memory[-1]
    mapped, used, free = after.mapped - before.mapped, after.in_use - before.in_use, after.free - before.free
    grown = mapped or used + free
    if grown < _MUCH or used * 2 > grown:
        return []
    unused = after.rest + after.top - before.rest - before.top
    rest = f", headers, tops and unused memory by {human_size(unused)}" if mapped else ""
    text = (
        f"The {'memory of the heap' if mapped else 'blocks of the heap, free ones included,'} grew by "
        f"{human_size(grown)}, the blocks in use by {human_size(used)}: "
        f"this is fragmentation or memory kept for later, not a leak. Free blocks grew by {human_size(free)}{rest}"
    )
    return [Finding("fragmentation", WASTE, LIKELY, text, _advice(heaps), weight=grown)]


def _advice(heaps: Sequence[ProcessHeap]) -> str:
    """Return how to get the memory back, for the allocator that grew most."""
    first, last = _owned(heaps[0]), _owned(heaps[-1])
    name = max(last, key=lambda name: (last[name] - first[name], last[name]), default="")
    return next((advice(one) for one in heaps[-1].heaps if one.allocator == name), "")


def _owned(heap: ProcessHeap) -> Counter[str]:
    """Return the bytes of address space of each allocator."""
    found: Counter[str] = Counter()
    for one in heap.heaps:
        found[one.allocator] += sum(end - start for start, end in one.owned)
    return found
