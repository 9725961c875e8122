"""Find contradictions in the records of glibc's malloc: arenas, top chunks, heaps, ``mp_``, lists of free chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.glibc.bins import binmap_problems
from dmods.allocators.glibc.caches import FreeList
from dmods.allocators.glibc.runs import top_size
from dmods.allocators.glibc.state import State
from dmods.allocators.glibc.structures import Arena
from dmods.allocators.vocabulary import Contradiction, contradiction
from dmods.base.named_tuple import NamedTuple
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
    yield from _bad_lists(heap)
    damaged = caches.open_ended.union(name for name, _, _ in caches.problems)
    for free in caches.lists:
        # A difference of one is no damage: a thread may have been in the middle of malloc.
        if free.said is not None and free.name not in damaged and abs(caches.found[free.name] - free.said) > 1:
            text = f"its counter says {free.said}, {caches.found[free.name]} are there"
            yield contradiction(None, free.name, free.head, text)


NOT_A_CHUNK = "not a chunk"  # of the engine's words for a problem of a list


class _BadLink(NamedTuple):
    """The bad link of a list: the block that holds it, or None for the head, and the blocks to which it leads.

    ``text`` says where it leads, if that is not the end of the list. ``other`` says where it may be instead.
    """

    holder: Optional[int]
    strays: Sequence[int] = ()
    text: str = ""
    other: str = ""


def _bad_lists(heap: State) -> Iterator[Contradiction]:
    """Yield the damaged fastbins and tcaches. A sound list may share a chunk with a damaged one."""
    caches = heap.caches
    by_name = {free.name: free for free in caches.lists}
    strays: set[int] = set()
    for name, what, where in caches.problems:
        if heap.is_unseen(where):
            continue  # the dump lacks what it leads to
        free = by_name[name]
        if _user(heap, free, where) in strays:
            continue
        bad = _bad_link(heap, free, where, what)
        strays.update(bad.strays)
        text = bad.text or f"leads to {where:#x}: {what}{bad.other}"
        yield contradiction(caches.owners.get(name), name, bad.holder, text)


def _bad_link(heap: State, free: FreeList, where: int, what: str) -> _BadLink:
    """Return the link through which a list left the chunks that belong on it. ``where`` and ``what`` end the list."""
    caches = heap.caches
    user = _user(heap, free, where)
    follow = heap.process.engine.follow
    problem, blocks = follow(free.head, free.to_user, caches.protected, free.least, free.most)
    before: dict[int, Optional[int]] = {}
    previous: Optional[int] = None
    for block in blocks:
        if block in before:
            return _BadLink(previous)  # this link closes the cycle
        before[block] = previous
        previous = block
    if user in before:  # it is on another list, unless the list leads back to it
        closed = problem is not None and problem[1] == where
        return _BadLink(previous) if closed else _BadLink(before[user], blocks[blocks.index(user) :])
    if free.to_user and caches.keys:
        return _without_key(heap, blocks)
    if previous is None or what != NOT_A_CHUNK:
        return _BadLink(previous)
    link = before[previous]
    before_it = f"in {link:#x}" if link is not None else "the head of the list"
    return _BadLink(previous, other=f"; or the wrong link is {before_it}, and {previous:#x} was never on the list")


def _user(heap: State, free: FreeList, where: int) -> int:
    """Return the block of an address on a list: a fastbin has the addresses of chunks."""
    return where if free.to_user else where + 2 * heap.process.words.size


def _without_key(heap: State, blocks: Sequence[int]) -> _BadLink:
    """Return the last chunk of a tcache's list that has the key in its second word (2.29, tcache_put)."""
    words, keys = heap.process.words, heap.caches.keys
    known = [number for number, block in enumerate(blocks) if words.at(block + words.size) in keys]
    strays = blocks[known[-1] + 1 :] if known else blocks
    text = f"leads to {strays[0]:#x}, which does not have the key of a freed chunk" if strays else ""
    return _BadLink(blocks[known[-1]] if known else None, strays, text)
