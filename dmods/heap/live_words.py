"""The words of a process that keep something alive: the roots, and the words of blocks in use."""

from __future__ import annotations

from collections.abc import Sequence

from dmods import _engine
from dmods.base.ranges import Ranges
from dmods.heap.block import LIVE, OWN
from dmods.heap.heap import ProcessHeap


class LiveWords:
    """The live words of a heap whose leaks have been found. ``aside`` is memory whose words do not count."""

    def __init__(self, heap: ProcessHeap, aside: Ranges) -> None:
        self.heap = heap
        self._image, self._word = heap.words.image, heap.words.size
        self.roots = list(Ranges(sorted(aside.without(Ranges(sorted(heap.marks.ranges))))))
        self.blocks = list(heap.owned)
        self._root_set = Ranges(self.roots)
        self.values = {*heap.roots.values, *heap.roots.vectors, *heap.marks.values}

    def __contains__(self, at: int) -> bool:
        """Return whether the word at an address is a root, or in a block in use."""
        block = self.heap.block_at(at)
        return block.state in (LIVE, OWN) if block is not None else at in self._root_set

    @property
    def memory(self) -> list[tuple[int, int]]:
        """Return the memory that has the words. Not all of its blocks are in use."""
        return list(Ranges(sorted([*self.roots, *self.blocks])))

    def pointers(
        self, ranges: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]], most: int
    ) -> list[list[int]]:
        """Return for each wanted range the addresses of up to ``most`` aligned words in ``ranges`` that point into it.

        The wanted ranges are sorted and do not overlap. See also ``in``.
        """
        return _engine.find_pointers(self._image, list(ranges), self._word, list(wanted), most)

    def odd_pointers(
        self, ranges: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return (address, value) of the unaligned words in ``ranges`` that point into a wanted range."""
        return _engine.find_code_words(self._image, list(ranges), self._word, list(wanted))
