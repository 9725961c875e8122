"""The objects of CPython in the heap of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods._engine import CollectorLinks, Slots, python_objects
from dmods.allocators.vocabulary import PYTHON
from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import ProcessHeap
from dmods.target import Target

Census = tuple[list[tuple[int, int, int, int, int]], list[tuple[int, int, int, bool]]]


class PythonObjects(NamedTuple):
    """Where objects may be: the slots of pymalloc, and the blocks (address, usable bytes) of other allocators.

    ``minor`` is 9 for CPython 3.9.
    """

    target: Target
    slots: list[Slots]
    blocks: list[tuple[int, int]]
    minor: int
    links: Optional[CollectorLinks]

    def census(self, wanted: Sequence[int] = (), most: int = 0) -> Census:
        """Return the objects by type, and those of the wanted types: see ``_engine.pyi``."""
        image = self.target.image()
        with Progress("reading objects") as bar:
            return python_objects(
                image,
                self.slots,
                self.blocks,
                self.minor,
                self.links,
                list(wanted),
                most,
                lambda done: bar.update(done, 0),
            )


def in_cycles(heap: ProcessHeap, minor: int) -> PythonObjects:
    """Return where the objects are that only cycles hold: those that the collector would free at its next run."""
    found = (heap.block_at(address) for address in heap.marks.unfreed)
    blocks = sorted({(block.address, block.size) for block in found if block is not None})
    return PythonObjects(heap.target, [], blocks, minor, heap.index.collector.links)


def objects_in(heap: ProcessHeap, minor: int) -> PythonObjects:
    """Return where the objects of a heap may be: in pymalloc's pools, and in the blocks in use of the others.

    These have large objects, and all of them with PYTHONMALLOC=malloc.
    """
    arenas = {one.arena for one in heap.heaps if one.runtime == PYTHON}
    used = heap.blocks(LIVE, DIRECT, INDIRECT)
    blocks = [(block.address, block.size) for block in used if block.arena not in arenas and block.size >= 16]
    slots = [one.slots for one in heap.heaps if one.runtime == PYTHON]
    return PythonObjects(heap.target, slots, blocks, minor, heap.index.collector.links)
