"""tcaches that nothing leads to any more: those of threads that a fork did not copy.

In the child of a fork only one thread is there. glibc gives the stacks of the others, and the thread-local memory at
their top, to new threads. jemalloc's tcaches were in it. What stays are the arrays in which each tcache kept the
addresses of its blocks (jemalloc src/tcache.c, tsd_tcache_data_init). All arrays of a process have the same layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dmods.allocators.block import Block
from dmods.allocators.jemalloc.caches import Tcache, bin_arrays
from dmods.allocators.jemalloc.layouts import Layout
from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.base.words import Words

if TYPE_CHECKING:
    from dmods._engine import Index, Marks
    from dmods.allocators.protocol import Marked

_MOST_ORPHANS = 1 << 12
_TICKS = 1000
_TICKERS_MAX = 1 << 15
_ENOUGH = 8  # blocks that make an array of addresses certain, where nothing else marks it


class _Bin(NamedTuple):
    """The place of a bin's addresses in the array, in words, and the size of its blocks."""

    first: int
    end: int
    size: int


@dataclass(frozen=True)
class Pattern:
    """The layout of the array of a tcache: its size and arena, its bins, and the words between them that never change.

    jemalloc 5.3 writes constants there (cache_bin_preceding_junk and cache_bin_trailing_junk). With `tickers` (5.2)
    each tcache also had an array of tickers, one for each arena (arenas_tdata).
    """

    size: int
    arena: int
    bins: tuple[_Bin, ...]
    between: dict[int, int]
    tickers: bool


@dataclass
class Orphans:
    """The arrays, arrays of tickers, and the blocks that may have been in the tcaches.

    Each of the blocks is free, or the thread took it out and leaked it: the number of blocks in a bin is lost.
    """

    arrays: list[int] = field(default_factory=list)
    tickers: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)


def pattern_of(words: Words, layout: Layout, tcache: Tcache, index: Index) -> Optional[Pattern]:
    """Return the pattern of a tcache's array, or None where it cannot be read."""
    ranges = bin_arrays(words, layout, tcache)
    row = index.find(ranges[0][2] - words.size) if ranges else None
    if row is None:
        return None
    address, size, arena = row.address, row.size, row.arena
    content = words.many(address, size // words.size)
    bins = []
    for number, begin, end in ranges:
        first = begin or address
        if not address <= first <= end <= address + size or number >= len(layout.sizes):
            return None
        bins.append(_Bin((first - address) // words.size, (end - address) // words.size, layout.sizes[number]))
    if content is None:
        return None
    taken = {place for each in bins for place in range(each.first, each.end)}
    last = max(each.end for each in bins)
    between = {i: content[i] for i in range(min(last + 1, len(content))) if i not in taken and content[i]}
    return Pattern(size, arena, tuple(bins), between, not tcache.shape.paired)


def find_orphans(words: Words, marks: Marked, patterns: Sequence[Pattern]) -> Orphans:
    """Return the arrays among the unreachable blocks, and what they held.

    An array does not tell which of its addresses are of blocks that the thread took out again: see `_may_be_cached`.
    """
    found = Orphans()
    sizes = {pattern.size for pattern in patterns}
    if not sizes.intersection(row.size for row in marks.engine.groups()):
        return found
    for block in marks.blocks(*_UNREACHABLE):
        for pattern in patterns if block.size in sizes else ():
            if (block.size, block.arena) == (pattern.size, pattern.arena) and len(found.arrays) < _MOST_ORPHANS:
                content = words.many(block.address, block.size // words.size)
                blocks = _read(marks.engine, pattern, content) if content is not None else None
                if blocks is not None:
                    found.arrays.append(block.address)
                    found.doubtful.extend(blocks)
                    break
    if found.arrays:
        found.tickers = _tickers(words, patterns, len(found.arrays), marks.blocks(*_UNREACHABLE))
    return found


def _tickers(words: Words, patterns: Sequence[Pattern], most: int, unreachable: Iterable[Block]) -> list[int]:
    """Return the arrays of tickers among the unreachable blocks, at most `most`.

    A ticker is two ints: what is left of 1000 ticks, and 1000 (ticker.h; arena.h, DECAY_NTICKS_PER_UPDATE).
    """
    arenas = {pattern.arena for pattern in patterns if pattern.tickers}
    found: list[int] = []
    for block in unreachable:
        if block.arena in arenas and block.size <= _TICKERS_MAX and len(found) < most:
            content = list(words.many(block.address, block.size // words.size) or ())
            while content and not content[-1]:
                content.pop()
            if content and all(word >> 32 == _TICKS and word & 0xFFFFFFFF <= _TICKS for word in content):
                found.append(block.address)
    return found


def _read(marks: Marks, pattern: Pattern, content: Sequence[int]) -> Optional[list[int]]:
    """Return the blocks that may be in the cache that the array is of; None if it is something else."""
    if any(content[place] != value for place, value in pattern.between.items()):
        return None
    found: list[int] = []
    good = bad = 0
    for each in pattern.bins:
        slots: list[tuple[int, int]] = []
        seen: set[int] = set()
        for value in _from_the_top(content, each):
            row = marks.find(value)
            is_block = row is not None and row.address == value and row.size == each.size
            good, bad = good + is_block, bad + (not is_block)
            slots.append((value, row.state if row is not None and is_block and value not in seen else _IMPOSSIBLE))
            seen.add(value)
        found.extend(_may_be_cached(slots))
    certain = bool(pattern.between) and bad <= good
    return found if certain or (good >= _ENOUGH and bad * _ENOUGH <= good) else None


_IMPOSSIBLE = 1  # the state of free blocks, as the engine has it: what a slab or another cache has is in no cache
_UNREACHABLE = (2, 3)  # states of leaked blocks
_OTHERS = 3  # addresses that prove where old ones begin


def _may_be_cached(slots: Sequence[tuple[int, int]]) -> list[int]:
    """Return the unreachable blocks in a bin that may be in the cache. A slot has an address and its block's state.

    The addresses of cached blocks stand at the top, without a gap. Those that the thread took out follow. So no slot
    behind one that cannot be cached (free, no block, there twice) is of a cached block. A thread that the fork caught
    as it gave blocks back to their slabs left up to a few such addresses at the top: more than one must prove it. A
    block that something points to proves nothing, as a freed block may have old pointers to it.
    """
    found, impossible = [], 0
    for address, state in slots:
        impossible += state == _IMPOSSIBLE
        if impossible >= _OTHERS:
            break
        if state in _UNREACHABLE:
            found.append(address)
    return found


def _from_the_top(content: Sequence[int], each: _Bin) -> Iterator[int]:
    """Yield the addresses in a bin, the oldest first. The array grows down."""
    for place in range(each.end - 1, each.first - 1, -1):
        if not content[place]:
            return
        yield content[place]
