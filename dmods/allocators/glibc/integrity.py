"""Find contradictions in the records of glibc's malloc: arenas, top chunks, heaps, ``mp_``, lists of free chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.glibc.bins import binmap_problems
from dmods.allocators.glibc.caches import FreeList
from dmods.allocators.glibc.runs import top_size
from dmods.allocators.glibc.state import State
from dmods.allocators.glibc.structures import Arena
from dmods.allocators.vocabulary import Contradiction, contradiction
from dmods.base.ranges import Ranges


def structures(heap: State) -> Iterator[Contradiction]:
    """Yield contradictions in the ring of arenas, their heaps, and ``mp_``. (`damages` has damaged tops.)"""
    for malloc in heap.layout.mallocs:
        for text in malloc.problems:
            yield contradiction(None, "ring of arenas", malloc.arenas[0].address, text)
    for number, arena in enumerate(heap.all):
        for text in arena.problems:
            yield contradiction(number, "arena", arena.address, text)
    for owner, where, text in heap.layout.contradictions:
        if where == "mp_" and _lacks_mapped(heap):
            continue
        if where == "arena" and owner is not None and owner in heap.arenas_unseen():
            continue
        if where != "top" or owner is None or top_problem(heap, heap.all[owner]) is None:
            yield contradiction(owner, where, None if owner is None else heap.all[owner].address, text)


def _lacks_mapped(heap: State) -> bool:
    """Return whether the dump lacks memory that may be blocks with mappings of their own."""
    anonymous = Ranges((m.start, m.end) for m in heap.process.target.mappings() if "w" in m.flags and m.path is None)
    missing = [part for gap in heap.process.target.missing for part in anonymous.within(*gap)]
    return bool(heap.layout.owned.without(missing))


def top_problem(heap: State, arena: Arena) -> Optional[str]:
    """Return what is wrong with the top chunk, or None.

    A sound top has at least MINSIZE, its PREV_INUSE is set, and it ends where its memory ends.
    """
    if arena.top == arena.initial_top:
        return None
    field = heap.process.words.at(arena.top + heap.process.words.size)
    size = top_size(heap.process.words, arena)
    end = arena.top + size
    if field is None:
        return None  # not in the dump: another note says so
    if size < 4 * heap.process.words.size or size > arena.system_mem:
        return "its size is impossible"
    if not field & 1:
        return "its PREV_INUSE is clear, but malloc merges a free chunk before top into top"
    ends = [info.start + info.size for info in arena.heaps] if not arena.main else []
    if (ends and end not in ends) or (arena.main and arena.contiguous and end % heap.layout.page):
        return f"it would end at {end:#x}, where its memory does not"
    return None


def links(heap: State) -> Iterator[Contradiction]:
    """Yield contradictions in bins, fastbins and tcaches."""
    bins, caches = heap.bins, heap.caches
    for problem in bins.problems:
        yield contradiction(problem.arena, problem.bin, problem.address, problem.text)
    for number, arena in enumerate(heap.all):
        for problem in binmap_problems(heap.process.words, number, arena, bins):
            yield contradiction(number, problem.bin, problem.address, problem.text)
    by_name = {free.name: free for free in caches.lists}
    damaged = {name for name, _, _ in caches.problems}
    for name, what, where in caches.problems:
        if heap.is_unseen(where):
            continue  # the dump lacks what it leads to
        text = f"leads to {where:#x}: {what}"
        yield contradiction(caches.owners.get(name), name, _holder(heap, by_name[name]), text)
    for free in caches.lists:
        # A difference of one is no damage: a thread may have been in the middle of malloc.
        if free.said is not None and free.name not in damaged and abs(caches.found[free.name] - free.said) > 1:
            text = f"its counter says {free.said}, {caches.found[free.name]} are there"
            yield contradiction(None, free.name, free.head, text)


def _holder(heap: State, free: FreeList) -> Optional[int]:
    """Return the block on a damaged list that has the bad link. None: the head of the list has it."""
    followed = heap.process.index.follow(
        free.head, free.to_user, heap.caches.protected, free.least, free.most, False, True
    )
    seen: set[int] = set()
    before: Optional[int] = None
    for block in followed[3]:
        if block in seen:
            return before  # this block closes the cycle
        seen.add(block)
        before = block
    return before
