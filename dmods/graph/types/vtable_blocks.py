"""Blocks that begin with the same vtable pointer: how many there are, by size."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Callable, Optional

from dmods import _engine
from dmods.heap.heap import ProcessHeap

_MOST_ASKED = 16  # times that all pointers of a heap are looked at
_MOST_POINTERS = 16  # to one block


class VtableBlocks:
    """The blocks of several heaps that begin with a vtable pointer.

    ``rows`` are the kinds of all blocks, and ``has_vtable`` tells which of them begin so. ``first_blocks`` returns for
    the number of a heap and the numbers of kinds the addresses of the first blocks of each kind.
    """

    def __init__(
        self,
        heaps: Sequence[ProcessHeap],
        rows: Sequence[_engine.KindRow],
        has_vtable: Callable[[_engine.KindRow], bool],
        first_blocks: Callable[[int, list[int]], list[list[int]]],
    ) -> None:
        self.heaps = heaps
        self.of_size: Counter[int] = Counter()
        self.of_vtable: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._kinds = [kind for kind, row in enumerate(rows) if has_vtable(row)]
        for row in rows:
            self.of_size[row.most] += row.count
        for row in (rows[kind] for kind in self._kinds):
            self.of_vtable[row.words[0][1]][row.most] += row.count
        self._first_blocks = first_blocks
        self._asked = 0

    @cached_property
    def examples(self) -> dict[int, tuple[int, list[int]]]:
        """For each kind: the number of the first heap that has some of its blocks, and the addresses of a few."""
        found: dict[int, tuple[int, list[int]]] = {}
        for index in range(len(self.heaps)):
            kinds = [kind for kind in self._kinds if kind not in found]
            lists = zip(kinds, self._first_blocks(index, kinds))
            found.update((kind, (index, blocks)) for kind, blocks in lists if blocks)
        return found

    def alike(self, kind: int, row: _engine.KindRow) -> Alike:
        """Return the blocks of a kind, of which ``row`` tells."""
        return Alike(self, kind, row)

    def pointers(self, index: int, blocks: Sequence[int]) -> Optional[list[list[int]]]:
        """Return where the pointers to the start of each block are, in heap number ``index``.

        Each call takes a pass over the heap's pointers. None: there were too many calls.
        """
        self._asked += 1
        if self._asked > _MOST_ASKED:
            return None
        return self.heaps[index].index.pointers([(start, start + 1) for start in blocks], _MOST_POINTERS)


class Alike:
    """The blocks of one size that begin with one vtable pointer.

    ``usable`` are their least and largest size. ``count`` is how many there are, ``all_count`` how many blocks of their
    size in all. ``others`` has how many blocks of other sizes begin with the same pointer: (largest size, count).
    """

    def __init__(self, blocks: VtableBlocks, kind: int, row: _engine.KindRow) -> None:
        sizes = blocks.of_vtable[row.words[0][1]]
        self.usable = row.least, row.most
        self.count = sizes[row.most]
        self.all_count = blocks.of_size[row.most]
        self.others = [each for each in sizes.items() if each[0] != row.most]
        self._blocks = blocks
        self._kind = kind

    @property
    def examples(self) -> list[int]:
        """The addresses of a few of the blocks. The first time this takes a pass over all blocks."""
        return self._found[1]

    @property
    def _found(self) -> tuple[int, list[int]]:
        return self._blocks.examples.get(self._kind, (0, []))

    def pointers(self) -> Optional[list[list[int]]]:
        """Return where the pointers to each of the examples are, or None where too many blocks were asked for."""
        return self._blocks.pointers(*self._found)
