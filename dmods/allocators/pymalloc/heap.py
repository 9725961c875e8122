"""The heap of pymalloc, as the rest of dmods sees it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Optional

from dmods._engine import Pymalloc
from dmods.allocators.protocol import Heap
from dmods.allocators.pymalloc import NAME
from dmods.allocators.vocabulary import PYTHON, Problem
from dmods.base.dataclass import dataclass, field
from dmods.target import Target

_HEADER = 48
_TEXTS = {
    "pool": "this pool contradicts itself: which of its blocks are in use is not known",
    "free pools": "this arena's list of free pools is damaged, or does not fit its count",
    "missing": "this pool is not in the dump",
}


@dataclass
class PymallocHeap(Heap):
    """The arenas of all interpreters. ``arenas`` are (start, end, pools, used pools), by address."""

    arenas: Sequence[tuple[int, int, int, int]] = ()
    unknown: list[tuple[int, int]] = field(default_factory=list)  # pools whose blocks are not known
    classes: Sequence[tuple[int, int, int]] = ()  # (pools, blocks in use, free blocks), by size class

    @property
    def runtime(self) -> str:
        """Return CPython: nothing else asks pymalloc for blocks."""
        return PYTHON

    def roots(self, target: Target, unaligned: bool) -> list[tuple[int, int]]:
        """Return the pools whose blocks are not known: any word there may be a pointer that the program uses."""
        del target, unaligned
        return self.unknown

    def where(self, address: int) -> Optional[str]:
        """Return what an address is that is in no block."""
        index = bisect_right(self.arenas, (address, 1 << 64, 0, 0)) - 1
        if index < 0 or address >= self.arenas[index][1]:
            return None
        start, _end, pools, used = self.arenas[index]
        return f"in the arena at {start:#x} of pymalloc ({used} of {pools} pools in use), in no block"

    def holder(self, address: int) -> Optional[str]:
        """Return what holds the free block that begins there."""
        return "in its pool of pymalloc" if self.where(address) is not None else None

    def statistics(self) -> list[tuple[str, int]]:
        """Return the figures that sys._debugmallocstats has, too."""
        pools = sum(row[2] for row in self.arenas)
        used = sum(row[3] for row in self.arenas)
        return [
            ("arenas", len(self.arenas)),
            ("pools in use", used),
            ("pools free", pools - used),
            ("bytes in arenas", sum(end - start for start, end, _pools, _used in self.arenas)),
            ("bytes in pools' headers", used * _HEADER),
        ]


def heap_of(heap: Pymalloc) -> PymallocHeap:
    """Return the heap of the arenas that the engine walked."""
    problems = [Problem(address, _TEXTS[kind]) for kind, address in heap.problems]
    doubts = []
    missing = sum(kind == "missing" for kind, _address in heap.problems)
    if missing:
        doubts.append(f"{missing} pools of pymalloc are not in the dump: what they point to may be reported as leaked")
    notes = []
    if heap.strays:
        many = f"at least {heap.strays} pools of pymalloc"
        notes.append(f"{many} are in no arena that was found: their memory counts as in use")
    return PymallocHeap(
        NAME,
        [(start, end) for start, end, _pools, _used in heap.arenas],
        heap.slots,
        notes=notes,
        doubts=doubts,
        problems=problems,
        serves_malloc=False,
        leaves_links=True,
        arenas=heap.arenas,
        unknown=heap.unknown,
        classes=heap.classes,
    )
