"""Which neighbouring words without a symbol belong to one variable.

A stripped program's variables lie side by side. Their distance says nothing: eight containers in a row are eight
variables. So each word is a variable of its own, and neighbours are joined only if the same structure leads back:

* both point into one block (a vector's begin and end);
* the block behind one word points into the block behind the other (a deque's table of pieces, a hash table's buckets);
* the block behind one word points back to memory beside the word (a list's first item, a tree's root, the bucket of a
  hash table's first item). All words up to there are joined, and a direct neighbour whose block is of the same size
  and leads to it, by a link that each block on the way has (a tree's leftmost and rightmost node, by their parents).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Optional

from dmods._engine import find_pointers
from dmods.heap.block import Block
from dmods.heap.heap import ProcessHeap

_NEAR = 128  # bytes: the largest variable whose words are joined. A deque has 80
_MOST_WORDS = 1 << 12  # that are looked at in a process; others are joined by nothing
_MOST_BYTES = 1 << 22  # of one block
_MOST_BACK = 64  # pointers out of one block
_MOST_LINKS = 64  # words of a block that may be its link
_MOST_STEPS = 1 << 14  # from block to block in a process
_DEPTH = 128  # blocks of one way: a red-black tree of 2^64 nodes is not deeper


class Joiner:
    """Joins unnamed words, up to a limit for the whole process."""

    def __init__(self, heap: ProcessHeap) -> None:
        self._heap, self._left, self._steps = heap, _MOST_WORDS, _MOST_STEPS

    def groups(self, words: Sequence[int]) -> list[list[int]]:
        """Return the words, which are sorted, in groups that belong together. A group has no gaps."""
        self._left -= len(words)
        if self._left < 0 or len(words) < 2:
            return [[word] for word in words]
        size = self._heap.words.size
        blocks = [self._block(word) for word in words]
        last = list(range(len(words)))  # for each word: the last word that it is joined with
        for place, block in enumerate(blocks):
            if block is None:
                continue
            first, end = self._near(words, place)
            for other in range(first, end):
                beside = blocks[other]
                if beside is not None and beside.address == block.address:
                    _join(last, place, other)
            for pointer, target in self._pointers(block, words[place], [blocks[other] for other in range(first, end)]):
                if target is not None:
                    _join(last, place, first + target)
                    continue
                reached = [other for other in range(first, end) if pointer <= words[other] <= words[place]]
                reached += [other for other in range(first, end) if words[place] <= words[other] < pointer + size]
                for other in reached:
                    _join(last, place, other)
                self._join_alike(last, words, blocks, place)
        return _parts(words, last)

    def _near(self, words: Sequence[int], place: int) -> tuple[int, int]:
        at = words[place]
        return bisect_left(words, at - _NEAR), bisect_right(words, at + _NEAR)

    def _block(self, word: int) -> Optional[Block]:
        value = self._heap.words.at(word)
        return self._heap.block_at(value) if value is not None else None

    def _pointers(self, block: Block, word: int, beside: Sequence[Optional[Block]]) -> list[tuple[int, Optional[int]]]:
        """Return what the block points to: (address beside the word, None) or (0, number of a block in `beside`)."""
        wanted = [(word - _NEAR, word + _NEAR, -1)]
        for number, other in enumerate(beside):
            if other is not None and other.address != block.address:
                wanted.append((other.address, other.end, number))
        wanted = sorted({(start, end): (start, end, number) for start, end, number in wanted}.values())
        within = [(block.address, block.address + min(block.size, _MOST_BYTES))]
        size = self._heap.words.size
        asked = [(start, end) for start, end, _number in wanted]
        found = find_pointers(self._heap.target.image(), within, size, asked, _MOST_BACK)
        result: list[tuple[int, Optional[int]]] = []
        for (_start, _end, number), places in zip(wanted, found):
            if number >= 0:
                result.extend([(0, number)] if places else [])
                continue
            values = {self._heap.words.at(place) for place in places}
            result.extend((value, None) for value in values if value is not None)
        return result

    def _join_alike(self, last: list[int], words: Sequence[int], blocks: Sequence[Optional[Block]], place: int) -> None:
        """Join the direct neighbours of a word whose blocks are of the same structure."""
        block, size = blocks[place], self._heap.words.size
        for step in (-1, 1):
            other = place + step
            while 0 <= other < len(words) and abs(words[other] - words[other - step]) == size:
                beside = blocks[other]
                if block is None or beside is None or not self._leads(beside, block):
                    break
                _join(last, place, other)
                other += step

    def _leads(self, block: Block, to: Block) -> bool:
        """Return whether a block leads to another of its size, by a link that each block on the way has."""
        if block.address == to.address:
            return True
        size = self._heap.words.size
        for offset in range(0, min(block.size, _MOST_LINKS * size), size) if block.size == to.size else ():
            here: Optional[Block] = block
            for _ in range(_DEPTH):
                self._steps -= 1
                here = self._block(here.address + offset) if here is not None and self._steps >= 0 else None
                if here is None or here.size != to.size:
                    break
                if here.address == to.address:
                    return True
        return False


def _join(last: list[int], one: int, other: int) -> None:
    first, end = min(one, other), max(one, other)
    last[first] = max(last[first], end)


def _parts(words: Sequence[int], last: Sequence[int]) -> list[list[int]]:
    """Return the groups, where each word is joined with all up to the last one."""
    parts: list[list[int]] = []
    end = -1
    for place, word in enumerate(words):
        if place > end:
            parts.append([])
        parts[-1].append(word)
        end = max(end, last[place])
    return parts
