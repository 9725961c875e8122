"""Which blocks the roots of a process lead to, and which have leaked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Optional

from dmods import _engine
from dmods.allocators.search import Search
from dmods.allocators.vocabulary import Lost
from dmods.base.progress import Clock, bar
from dmods.base.ranges import Ranges
from dmods.heap.block import DIRECT, INDIRECT, LIVE, Block, block_of_row
from dmods.heap.false_pointers.decide import without_false_pointers
from dmods.heap.follow import without_tag
from dmods.heap.garbage import Garbage, find_garbage
from dmods.heap.index import Index, listed
from dmods.heap.leak_totals import Group, Leaks, group_of_row
from dmods.heap.roots.hidden_pointers import code_words, jump_buffer_values
from dmods.process.vectors import unaligned_values

BY_ENDS = "held only by end pointers of the block before it"
BESIDE_ENDS = "held only by blocks that end pointers hold"


class Marks:
    """The blocks of a process by what holds them: the fourth stage of its heap. Its state does not change.

    ``ranges`` and ``values`` are what marking began with. ``code_words`` are (address, value) of pointers in code that
    the program made. ``garbage`` is what a collector will free, and ``unfreed`` the objects that CPython's will.
    ``doubtful`` says of blocks what is uncertain.
    """

    def __init__(self, index: Index) -> None:
        clock = Clock()
        self.index = index
        self.ranges: list[tuple[int, int]] = root_ranges(index)
        for report in index.reports:
            self.ranges.extend(report["gaps"])
            self.ranges.extend(report["lost"])
        self.code_words = code_words(index.target, index.owned, index.roots)
        values, vectors = self._start_values(), _vector_values(index)
        follow = index.follow
        with bar("marking", 0) as progress:  # the total is not known before the end
            engine = index.engine.mark(
                self.ranges, values, vectors, follow.unaligned, follow.tagged, list(index.roots.dead), progress
            )
            self.unfreed = index.collector.garbage(
                ((row.address, row.size) for row in listed(engine.blocks, (DIRECT, INDIRECT))),
                index.unused[0] if index.unused else None,
            )
            self.garbage: Sequence[Garbage] = find_garbage(engine, index.heaps)
            garbage = self.unfreed + [address for one in self.garbage for address in one.addresses]
            if garbage:
                engine = engine.more(garbage, progress)
        self.engine: _engine.Marks = engine
        self.values: list[int] = values + garbage + vectors
        ends = (*((at, BY_ENDS) for at in engine.by_ends), *((at, BESIDE_ENDS) for at in engine.beside_ends))
        self.doubtful: dict[int, str] = {**index.doubtful, **dict(ends)}
        self._cost = clock.elapsed()

    def _start_values(self) -> list[int]:
        """Return the roots that stand in no range: registers, and words that the program hides."""
        index = self.index
        values = [*index.roots.values, *(address for one in index.heaps for address in one.kept())]
        values += sorted({value for _at, value in self.code_words})
        searched = list(Ranges([*self.ranges, *index.owned]))
        return values + jump_buffer_values(index.target, searched, index.owned, lambda at: _is_in_use(index, at))

    @cached_property
    def leaks(self) -> Leaks:
        """The totals of the unreachable blocks."""
        root_bytes = sum(end - start for start, end in self.ranges)
        seconds, cpu = (self._cost[i] + self.index.cost[i] for i in (0, 1))
        marked = self.engine
        return Leaks(
            *marked.totals,
            self.groups(),
            root_bytes,
            marked.candidates,
            marked.reached,
            seconds,
            cpu,
            marked.by_vectors,
        )

    def groups(self) -> list[Group]:
        """Return the direct leaks by size."""
        return [group_of_row(row) for row in self.engine.groups()]

    def lost(self) -> list[Lost]:
        """Return the caches that are gone, with the blocks that were in them: see ``Heap.lost``."""
        found = (one.lost(self) for one in self.index.heaps)
        return [each for each in found if each is not None]

    # -- blocks ---------------------------------------------------------------------------------------------------

    def blocks(self, *states: int) -> Iterator[Block]:
        """Yield every block in one of the states, by address."""
        return listed(self.engine.blocks, states)

    def block_at(self, address: int) -> Optional[Block]:
        """Return the block that ``address`` points into, free or not, or None."""
        row = self.engine.find(address)
        return block_of_row(row) if row is not None else None

    def is_garbage(self, block: Block) -> bool:
        """Return whether a garbage collector will free the block: nothing reaches it."""
        return any(block.address in one for one in self.garbage)

    def reached_without(self, block: Block, addresses: list[int]) -> list[bool]:
        """Return for each address whether a path that avoids `block` leads to the block that it lies in.

        Paths begin at the roots; for a leaked `block` at the direct leaks. It takes about as long as marking.
        """
        with bar("marking without the block", 0) as progress:
            return self.engine.reached_without(self.ranges, self.values, block.address, addresses, progress)


def root_ranges(index: Index) -> list[tuple[int, int]]:
    """Return the root ranges without the thread-local memory of allocators and without false pointers.

    Memory of allocators that may be in use is among them.
    """
    roots, follow = index.roots, index.follow
    ranges = list(roots.ranges)
    for one in index.heaps:
        ranges = [*ranges, *Ranges(roots.dead).without(one.roots(index.target, follow.unaligned))]
    for one in index.heaps:
        ranges = one.silent().without(ranges)

    def block_of(address: int) -> Optional[int]:
        row = index.engine.find(address)
        return row.address if row is not None else None

    return without_false_pointers(Search(index.target, index.owned, ranges, block_of), index.heaps)


def _is_in_use(index: Index, address: int) -> bool:
    block = index.engine.find(address)
    return block is not None and block.state == LIVE


def _vector_values(index: Index) -> list[int]:
    """Return the words of vector registers that point into a block."""
    found = set(index.roots.vectors)
    if index.follow.tagged:
        found.update(address for value in index.roots.vectors for address in without_tag(value))
    if index.follow.unaligned:
        for thread in index.target.threads():
            found.update(unaligned_values(thread.vectors or {}, index.words.size))
    parts = list(index.owned)
    if not parts:
        return []
    low, high = parts[0][0], parts[-1][1]
    return sorted(value for value in found if low <= value < high and index.engine.find(value) is not None)
