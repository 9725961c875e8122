"""The heap of an allocator other than glibc's malloc and jemalloc, as the reader of its structures gives it.

``walkers.py`` lists the readers. The rest of dmods knows such a heap by this class alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from dmods._engine import Slots
from dmods.base.dataclass import dataclass, field
from dmods.target import Target

_FIRST = 1 << 31  # numbers of arenas from here on stand for allocators with one arena (engine: heap/runs.rs, OTHERS)
_NAMES = (
    "tcmalloc",
    "mimalloc",
    "musl's malloc",
    "pymalloc",
    "mozjemalloc",
    "AddressSanitizer's malloc",
    "HWAddressSanitizer's malloc",
    "ThreadSanitizer's malloc",
    "MemorySanitizer's malloc",
    "LeakSanitizer's malloc",
    "Scudo",
    "snmalloc",
    "rpmalloc",
    "Hoard",
    "Go",
)


def arena_number(name: str) -> int:
    """Return the number of the arena that stands for all blocks of that allocator. Raises ValueError."""
    return _FIRST + _NAMES.index(name)


def walked_name(number: Optional[int]) -> Optional[str]:
    """Return the name of the allocator that ``arena_number`` gave the number, or None."""
    place = number - _FIRST if number is not None else -1
    return _NAMES[place] if 0 <= place < len(_NAMES) else None


class Problem(NamedTuple):
    """Damage that the reader met."""

    address: int
    text: str


@dataclass
class Walked:
    """The heap of one allocator.

    ``slots`` are its blocks. ``owned`` is all memory that it manages, in use or not, with its own structures: none of
    it holds roots. ``notes`` say what is uncertain. ``doubts`` say why a block that is in use may be missing.
    ``dead`` are words in its blocks, or outside, that look like pointers into the heap and are not pointers.
    ``own`` are addresses of blocks that the allocator took for itself: they are no leaks of the program. ``problems``
    is the damage. ``serves_malloc`` says that malloc() of the process gives out its blocks. ``leaves_links`` says that
    free blocks are linked by their first word, and that malloc() does not clear it.
    """

    name: str
    slots: Slots
    owned: list[tuple[int, int]]
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    dead: list[tuple[int, int]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    serves_malloc: bool = True
    leaves_links: bool = False

    @property
    def collected(self) -> bool:
        """Return whether a garbage collector frees the blocks. Then a block that nothing reaches is no leak."""
        return False

    def condemned(self) -> Iterable[tuple[int, int]]:
        """Return (address, bytes) of the blocks that the collector has found dead and will free, by address."""
        return ()

    @property
    def arena(self) -> int:
        """Return the number of the arena that stands for all its blocks."""
        return arena_number(self.name)

    @property
    def is_checked(self) -> bool:
        """Return whether the allocator's own structures were read, so that their damage was seen."""
        return True

    def roots(self, target: Target, unaligned: bool) -> list[tuple[int, int]]:
        """Return the parts of ``owned`` that may hold a pointer which the program uses."""
        del target, unaligned
        return []

    def stack_at(self, address: int) -> Optional[str]:
        """Return the stack in use of the heap's runtime that holds the address, in words, or None."""
        del address
        return None

    def where(self, address: int) -> Optional[str]:
        """Return what an address in ``owned`` that is in no block is: "in a free span of 8 pages". None: unknown."""
        del address
        return None

    def holder(self, address: int) -> Optional[str]:
        """Return what holds the free block that begins there: "in the cache of thread 5". None: unknown."""
        del address
        return None

    def statistics(self) -> list[tuple[str, int]]:
        """Return what malloc_stats says besides the sums over the blocks, as (what, how many or how many bytes)."""
        return []


class Found(NamedTuple):
    """The heaps that a reader found, and those that it refused.

    ``refusals`` say which check failed where an allocator is there and its layout could not be proven. Its memory then
    counts as ordinary memory.
    """

    heaps: Sequence[Walked] = ()
    refusals: Sequence[str] = ()
