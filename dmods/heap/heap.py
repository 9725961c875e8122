"""The heap of a process, stage by stage: the allocators, the roots, the blocks, and what holds them.

Each stage is made from the one before, and does not change: ``Survey`` -> ``Roots`` -> ``Index`` -> ``Marks``. What is
asked of a stage has one answer, whatever was asked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property, partial
from typing import Callable, Optional

from dmods.allocators.protocol import Heap
from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.heap.block import Block
from dmods.heap.follow import PLAIN, Follow
from dmods.heap.index import Index, find_start
from dmods.heap.leak_totals import Leaks
from dmods.heap.marks import Marks
from dmods.heap.roots.live_memory import Roots
from dmods.heap.survey import survey
from dmods.records.model import Records
from dmods.target import Target


class ProcessHeap:
    """The heap of one process. ``find_heap`` makes it. ``notes`` say what is uncertain.

    ``index`` has its blocks, without leaks. ``marks`` has them with leaks: it is made when it is first asked for.
    """

    def __init__(self, target: Target, follow: Follow = PLAIN) -> None:
        start = find_start(survey(target), follow)
        self.index = Index(start)
        if self.index.may_have_lost():
            # What caches that are gone held is free for every command, not only for those about leaks.
            lost = self.marks.lost()
            if lost:
                self.index = Index(start, lost)
                del self.marks
        self.notes = self.index.notes()

    @cached_property
    def marks(self) -> Marks:
        """The blocks by what holds them. They are marked once."""
        return Marks(self.index)

    def leaks(self) -> Leaks:
        """Return the totals of the unreachable blocks."""
        return self.marks.leaks

    @property
    def target(self) -> Target:
        """Return the process."""
        return self.index.target

    @property
    def words(self) -> Words:
        """Return the words of the process."""
        return self.index.words

    @property
    def records(self) -> Records:
        """Return who allocated what."""
        return self.index.records

    @property
    def heaps(self) -> Sequence[Heap]:
        """Return the allocators' heaps."""
        return self.index.heaps

    @property
    def owned(self) -> Ranges:
        """Return all memory of the allocators."""
        return self.index.owned

    @property
    def roots(self) -> Roots:
        """Return the roots."""
        return self.index.roots

    @property
    def found(self) -> bool:
        """Return whether the process ever used an allocator that dmods knows."""
        return self.index.found

    @property
    def bytes(self) -> int:
        """Return the bytes in chunks, beside them, in extents that are in use, and in other blocks."""
        return self.index.bytes

    def heap_of(self, block: Block) -> Optional[Heap]:
        """Return the allocator's heap that has the block, or None."""
        return self.index.heap_of(block)

    def blocks(self, *states: int) -> Iterator[Block]:
        """Yield every block in one of the states, by address."""
        return self.marks.blocks(*states)

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that ``address`` points into, free or not, or None."""
        return self.marks.block_at(address)


@cached
def find_heap(target: Target) -> ProcessHeap:
    """Return the heap of the target, computed once for each state of the target."""
    return ProcessHeap(target)


def find_heap_as(target: Target, follow: Follow) -> ProcessHeap:
    """Return the heap of the target with these pointers. It is computed once, too."""
    return find_heap(target) if follow == PLAIN else _finder(follow)(target)


@cache
def _finder(follow: Follow) -> Callable[[Target], ProcessHeap]:
    return cached(partial(ProcessHeap, follow=follow))
