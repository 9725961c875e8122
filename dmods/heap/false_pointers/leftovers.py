"""Pointers of which half was overwritten."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.search import LOW_END, Search

_MOST_MULTIPLES = 1 << 12  # of 4 GiB
_SMALL_INT = 4096  # ints that stand in the lower half of a stale pointer: flags, counts, errors


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
