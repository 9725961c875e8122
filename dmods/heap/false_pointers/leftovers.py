"""Sizes that allocators note, and pointers of which half was overwritten."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.glibc.arenas import noted_sizes
from dmods.allocators.jemalloc.find import program_breaks
from dmods.base.words import Words
from dmods.heap.false_pointers.search import LOW_END, Search

_MOST_MULTIPLES = 1 << 12  # of 4 GiB
_SMALL_INT = 4096  # ints that stand in the lower half of a stale pointer: flags, counts, errors


def malloc_sizes(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the sizes in glibc's `mp_` that lead inside a block."""
    words = Words(search.target.image(), search.target.arch.word)
    for malloc in search.mallocs:
        if malloc.parameters is not None:
            for at, value in noted_sizes(words, malloc.parameters):
                if search.leads_inside(value):
                    yield search.word_range(at)


def jemalloc_breaks(search: Search) -> Iterator[tuple[int, int]]:
    """Yield jemalloc's notes of the program's break that lead inside a block of another allocator."""
    words = Words(search.target.image(), search.target.arch.word)
    for jemalloc in search.jemallocs:
        for at, value in program_breaks(words, jemalloc):
            if search.leads_inside(value):
                yield search.word_range(at)


def jemalloc_leaf_keys(search: Search) -> Iterator[tuple[int, int]]:
    """Yield the keys in each thread's cache of jemalloc's tree (rtree_ctx_cache_elm_t: a key, then its leaf).

    The key is the beginning of the addresses that the leaf has: a multiple of a GiB.
    """
    for jemalloc in search.jemallocs:
        reach = 1 << (jemalloc.layout.levels[-1] + jemalloc.layout.page)
        keys = [at for at in search.owned.multiples(reach, _MOST_MULTIPLES) if search.leads_inside(at)]
        for at, _key in search.lookalikes(search.roots, [(key, key + 1) for key in keys]) if keys else ():
            if search.word(at + search.target.arch.word) in jemalloc.base:
                yield search.word_range(at)


def half_overwritten(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words on stacks that lead inside a block and may be half an old pointer, half an int."""
    for at, value in half_overwritten_candidates(search):
        if search.leads_inside(value):
            yield search.word_range(at)


def half_overwritten_candidates(search: Search) -> Iterator[tuple[int, int]]:
    """Yield (address, value) of words on the stacks in use that lie next to a multiple of 4 GiB in the heap.

    The upper half may be what was left of a pointer, the lower half an int that was written over it.
    """
    if search.target.arch.word != 8:
        return
    multiples = search.owned.multiples(LOW_END, _MOST_MULTIPLES)
    values = [(at - _SMALL_INT, at + _SMALL_INT) for at in multiples]
    if values:
        yield from search.lookalikes(search.stacks, values)
