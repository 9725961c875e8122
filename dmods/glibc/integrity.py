"""Contradictions in malloc's own records: arenas, top chunks, heaps, ``mp_``, and the lists of free chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dmods.glibc.bins import binmap_problems
from dmods.glibc.runs import top_size

if TYPE_CHECKING:
    from dmods.glibc.arenas import Arena
    from dmods.heap import ProcessHeap


@dataclass(frozen=True)
class Contradiction:
    """``arena`` is a number, or None for what is not an arena's; ``where`` names the structure or list."""

    arena: Optional[int]
    where: str
    address: Optional[int]
    text: str


def structures(heap: ProcessHeap) -> Iterator[Contradiction]:
    """The ring of arenas, their tops and heaps, and ``mp_``."""
    for malloc in heap.layout.mallocs:
        for text in malloc.problems:
            yield Contradiction(None, "arenas", malloc.arenas[0].address, text)
    for number, arena in enumerate(heap.arenas):
        for text in arena.problems:
            yield Contradiction(number, "arena", arena.address, text)
        yield from _top(heap, number, arena)
    for owner, where, text in heap.layout.contradictions:
        yield Contradiction(owner, where, None if owner is None else heap.arenas[owner].address, text)


def _top(heap: ProcessHeap, number: int, arena: Arena) -> Iterator[Contradiction]:
    """do_check_top and sysmalloc's assertions: top is at least MINSIZE, its PREV_INUSE is set, it ends on a page."""
    if arena.top == arena.initial_top:
        return
    field = heap.words.at(arena.top + heap.words.size)
    size = top_size(heap.words, arena)
    if field is None:
        return  # not in the dump: said elsewhere
    if size < 4 * heap.words.size:
        text = f"its size field {field:#x} is impossible"
    elif not field & 1:
        text = "its PREV_INUSE is clear, though the chunk before would then be part of it"
    elif arena.contiguous and (arena.top + size) % heap.layout.page:
        text = f"it ends at {arena.top + size:#x}, which is not a page's end"
    elif size > arena.system_mem:
        text = f"it has {size} bytes, its arena {arena.system_mem}"
    else:
        return
    yield Contradiction(number, "top", arena.top, text)


def lists(heap: ProcessHeap) -> Iterator[Contradiction]:
    """Bins, fastbins and tcaches."""
    bins = heap.bins()
    for problem in bins.problems:
        yield Contradiction(problem.arena, problem.bin, problem.address, problem.text)
    for number, arena in enumerate(heap.arenas):
        for problem in binmap_problems(heap.words, number, arena, bins):
            yield Contradiction(number, problem.bin, problem.address, problem.text)
    for name, what, where in heap.caches.problems:
        yield Contradiction(heap.caches.owners.get(name), name, where, f"leads to {where:#x}: {what}")
