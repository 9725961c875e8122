"""The tcaches of a jemalloc in a process heap: blocks that are free although slabs count them, and its own blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Optional

from dmods.allocators.jemalloc.caches import Tcache, find_tcaches, is_unknown, tcache_memory
from dmods.allocators.jemalloc.find import Jemalloc
from dmods.allocators.jemalloc.orphans import Pattern, pattern_of
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.target import Target

if TYPE_CHECKING:
    from dmods._engine import HeapBuilder, Index

_PATTERNS = 4  # tcaches whose arrays show the layout; all have the same


class Caches:
    """The tcaches of one jemalloc, made once its blocks are read.

    Making it sets the cached blocks free, and marks the stacks of tcaches as jemalloc's own. `wrong` are
    cached addresses where no block in use begins.
    """

    def __init__(
        self, words: Words, target: Target, jemalloc: Jemalloc, pointers: Iterable[int], builder: HeapBuilder
    ) -> None:
        self.all: list[Tcache] = find_tcaches(words, target, jemalloc, pointers)
        self.wrong: list[tuple[Tcache, int, int]] = []  # (tcache, size class, address)
        for tcache in self.all:
            for size_class, blocks in tcache.cached.items():
                self.wrong.extend((tcache, size_class, at) for at in builder.release(list(blocks)))
        self.unknown = not self.all and is_unknown(words, target, jemalloc.owned)
        builder.own([address for tcache in self.all for address in tcache.own], False)

    def patterns(self, words: Words, jemalloc: Jemalloc, index: Index) -> list[Pattern]:
        """Return the layout of the arrays of this jemalloc's tcaches."""
        found = (pattern_of(words, jemalloc.layout, tcache, index) for tcache in self.all[:_PATTERNS])
        return [pattern for pattern in found if pattern is not None]

    @property
    def count(self) -> int:
        """Return the number of blocks in the tcaches."""
        return sum(len(blocks) for tcache in self.all for blocks in tcache.cached.values()) - len(self.wrong)

    def holder(self, address: int) -> Optional[Tcache]:
        """Return the tcache that holds the block, or None."""
        return next((tcache for tcache in self.all for blocks in tcache.cached.values() if address in blocks), None)

    def own_memory(self, jemalloc: Jemalloc) -> Ranges:
        """Return the thread-local memory of the tcaches. What it points to is not held by it."""
        return Ranges(range_ for tcache in self.all for range_ in tcache_memory(jemalloc.layout, tcache))

    def notes(self, jemalloc: Jemalloc) -> list[str]:
        """Return the notes about what makes the answer uncertain."""
        out = []
        if self.unknown:
            out.append(
                f"{jemalloc.name}: no thread's tcache was recognized: freed blocks in one may be reported as leaked"
            )
        bad = sum(len(tcache.problems) for tcache in self.all)
        if bad or self.wrong:
            out.append(
                f"{jemalloc.name}: {bad} bins of tcaches are damaged and {len(self.wrong)} cached addresses are no "
                "block's: freed blocks may be reported as leaked"
            )
        return out
