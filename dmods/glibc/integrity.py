"""Contradictions in malloc's own records: arenas, top chunks, heaps, ``mp_``, and the lists of free chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dmods.glibc.bins import binmap_problems
from dmods.glibc.runs import top_size

if TYPE_CHECKING:
    from dmods.glibc.arenas import Arena
    from dmods.glibc.caches import FreeList
    from dmods.heap import ProcessHeap


@dataclass(frozen=True)
class Contradiction:
    """``arena`` is a number, or None for what is not an arena's; ``where`` names the structure or list."""

    arena: Optional[int]
    where: str
    address: Optional[int]
    text: str


def structures(heap: ProcessHeap) -> Iterator[Contradiction]:
    """The ring of arenas, their heaps, and ``mp_``. (Damaged tops are damaged chunks: see ``dmods.damage``.)"""
    for malloc in heap.layout.mallocs:
        for text in malloc.problems:
            yield Contradiction(None, "ring of arenas", malloc.arenas[0].address, text)
    for number, arena in enumerate(heap.arenas):
        for text in arena.problems:
            yield Contradiction(number, "arena", arena.address, text)
    for owner, where, text in heap.layout.contradictions:
        if where != "top" or owner is None or top_problem(heap, heap.arenas[owner]) is None:
            yield Contradiction(owner, where, None if owner is None else heap.arenas[owner].address, text)


def top_problem(heap: ProcessHeap, arena: Arena) -> Optional[str]:
    """What is wrong with the top chunk: it has MINSIZE, its PREV_INUSE is set, it ends where its memory does."""
    if arena.top == arena.initial_top:
        return None
    field = heap.words.at(arena.top + heap.words.size)
    size = top_size(heap.words, arena)
    end = arena.top + size
    if field is None:
        return None  # not in the dump: said elsewhere
    if size < 4 * heap.words.size or size > arena.system_mem:
        return "its size is impossible"
    if not field & 1:
        return "its PREV_INUSE is clear, though a free chunk before it would be part of it"
    ends = [info.start + info.size for info in arena.heaps] if not arena.main else []
    if (ends and end not in ends) or (arena.main and arena.contiguous and end % heap.layout.page):
        return f"it would end at {end:#x}, where its memory does not"
    return None


def links(heap: ProcessHeap) -> Iterator[Contradiction]:
    """Bins, fastbins and tcaches."""
    bins, caches = heap.bins(), heap.caches
    for problem in bins.problems:
        yield Contradiction(problem.arena, problem.bin, problem.address, problem.text)
    for number, arena in enumerate(heap.arenas):
        for problem in binmap_problems(heap.words, number, arena, bins):
            yield Contradiction(number, problem.bin, problem.address, problem.text)
    by_name = {free.name: free for free in caches.lists}
    damaged = {name for name, _, _ in caches.problems}
    for name, what, where in caches.problems:
        text = f"leads to {where:#x}: {what}"
        yield Contradiction(caches.owners.get(name), name, _holder(heap, by_name[name]), text)
    for free in caches.lists:
        # One more or less is a thread between two steps of malloc.
        if free.said is not None and free.name not in damaged and abs(caches.found[free.name] - free.said) > 1:
            text = f"its counter says {free.said}, {caches.found[free.name]} are there"
            yield Contradiction(None, free.name, free.head, text)


def _holder(heap: ProcessHeap, free: FreeList) -> Optional[int]:
    """The block on a damaged list whose link is the bad one; None where it is the list's head."""
    followed = heap.index.follow(free.head, free.to_user, heap.caches.protected, free.least, free.most, False, True)
    seen: set[int] = set()
    before: Optional[int] = None
    for block in followed[3]:
        if block in seen:
            return before  # it closes the cycle
        seen.add(block)
        before = block
    return before
