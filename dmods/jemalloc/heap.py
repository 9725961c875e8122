"""jemalloc's part in a process's heap: which of the blocks that slabs count as in use are free, or jemalloc's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.jemalloc import caches
from dmods.jemalloc.caches import Tcache
from dmods.jemalloc.find import Jemalloc
from dmods.ranges import Ranges
from dmods.target import Target
from dmods.words import Words

if TYPE_CHECKING:
    from dmods._engine import Heap

_ARENAS = 1 << 16  # numbers for each jemalloc's arenas (MALLOCX_ARENA_LIMIT is 4095)


def first_arena(order: int) -> int:
    """The number, among a heap's arenas, of arena 0 of the jemalloc in that place (0: the first)."""
    return (order + 1) * _ARENAS


def split(number: int) -> tuple[int, int]:
    """The place of the jemalloc (0: the first), and the arena's number in it."""
    order, arena = divmod(number, _ARENAS)
    return order - 1, arena


def arena_name(number: int) -> str:
    """ "je0"; of a second jemalloc "je2.0"."""
    order, arena = split(number)
    return f"je{order + 1}.{arena}" if order else f"je{arena}"


def is_arena(number: int) -> bool:
    """Whether it is the number of an arena of jemalloc's."""
    return _ARENAS <= number < 1 << 31


def arenas(jemallocs: Sequence[Jemalloc]) -> list[int]:
    """The numbers of all arenas that have extents."""
    return [
        first_arena(order) + arena
        for order, one in enumerate(jemallocs)
        for arena in sorted({arena for arena, *_ in one.extents.states()})
    ]


class Caches:
    """The tcaches of one jemalloc. Made after the blocks were indexed: sets free what they hold, and takes their stacks
    for jemalloc's own. ``wrong`` are cached addresses where no block in use begins."""

    def __init__(self, words: Words, target: Target, jemalloc: Jemalloc, pointers: Iterable[int], index: Heap) -> None:
        self.all: list[Tcache] = caches.find(words, target, jemalloc, pointers)
        self.wrong: list[tuple[Tcache, int, int]] = []  # (whose, size class, address)
        for tcache in self.all:
            for size_class, blocks in tcache.cached.items():
                self.wrong.extend((tcache, size_class, at) for at in index.release(list(blocks)))
        self.unknown = not self.all and caches.is_unknown(words, target, jemalloc.owned)
        index.own([address for tcache in self.all for address in tcache.own], False)

    @property
    def count(self) -> int:
        """Blocks that they hold."""
        return sum(len(blocks) for tcache in self.all for blocks in tcache.cached.values()) - len(self.wrong)

    def holder(self, address: int) -> Optional[Tcache]:
        """The tcache that holds the block."""
        return next((tcache for tcache in self.all for blocks in tcache.cached.values() if address in blocks), None)

    def own_memory(self, jemalloc: Jemalloc) -> Ranges:
        """The thread-local memory that jemalloc keeps its caches in: what it holds, holds no block."""
        return Ranges(range_ for tcache in self.all for range_ in caches.memory(jemalloc.layout, tcache))

    def notes(self, jemalloc: Jemalloc) -> list[str]:
        """What makes the answer uncertain."""
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
