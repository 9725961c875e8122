"""Words that jemalloc wrote and that look like pointers into a heap: the program's break, keys of its tree."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.jemalloc.find import Jemalloc, program_breaks
from dmods.allocators.search import Search
from dmods.base.words import Words

_MOST_MULTIPLES = 1 << 12  # of 4 GiB


def noted_breaks(one: Jemalloc, search: Search) -> Iterator[tuple[int, int]]:
    """Yield jemalloc's notes of the program's break that lead inside a block of another allocator."""
    words = Words(search.target.image(), search.target.arch.word)
    for at, value in program_breaks(words, one):
        if search.leads_inside(value):
            yield search.word_range(at)


def leaf_keys(one: Jemalloc, search: Search) -> Iterator[tuple[int, int]]:
    """Yield the keys in each thread's cache of jemalloc's tree (rtree_ctx_cache_elm_t: a key, then its leaf).

    The key is the beginning of the addresses that the leaf has: a multiple of a GiB.
    """
    reach = 1 << (one.layout.levels[-1] + one.layout.page)
    keys = [at for at in search.owned.multiples(reach, _MOST_MULTIPLES) if search.leads_inside(at)]
    for at, _key in search.lookalikes(search.roots, [(key, key + 1) for key in keys]) if keys else ():
        if search.word(at + search.target.arch.word) in one.base:
            yield search.word_range(at)
