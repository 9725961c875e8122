"""Words that glibc's malloc wrote and that look like pointers into a heap: sizes, and the keys of its tcaches."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.glibc.parameters import noted_sizes
from dmods.allocators.glibc.state import State
from dmods.allocators.search import Search
from dmods.base.ranges import Ranges
from dmods.base.words import Words

_DATA_NEAR_ARENA = 64 << 10  # bytes around main_arena in which libc's other variables lie, if its module is not known


def tcache_keys(heap: State, search: Search) -> Iterator[tuple[int, int]]:
    """Yield the words of libc's data that are a `tcache_key`, a random number that marks freed blocks.

    The walk of the tcaches meets many such numbers. Only one that leads to a block is searched for.
    """
    tcaches = set(heap.caches.tcaches)
    keys = [key for key in heap.caches.keys if key not in tcaches and search.block_of(key) is not None]
    if not keys:
        return
    main = [arena for malloc in heap.layout.mallocs for arena in malloc.arenas if arena.main]
    places = [(max(0, a.address - _DATA_NEAR_ARENA), a.end + _DATA_NEAR_ARENA) for a in main]
    for module in search.target.modules():  # in a static program all its variables may lie between the two
        if any(module.start <= arena.address < module.end for arena in main):
            places += [(piece.start, piece.end) for piece in module.ranges if "w" in piece.flags]
    searched = search.roots_in(Ranges(places))
    for key in keys:
        yield from search.words_equal(key, searched)


def malloc_sizes(heap: State, search: Search) -> Iterator[tuple[int, int]]:
    """Yield the sizes in glibc's `mp_` that lead inside a block."""
    words = Words(search.target.image(), search.target.arch.word)
    for malloc in heap.layout.mallocs:
        if malloc.parameters is not None:
            for at, value in noted_sizes(words, malloc.parameters):
                if search.leads_inside(value):
                    yield search.word_range(at)
