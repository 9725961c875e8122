"""Runs: stretches of consecutive chunks, as the engine walks them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Optional

from dmods import _engine
from dmods.allocators.glibc.arenas import first_chunk
from dmods.allocators.glibc.structures import Arena, Malloc
from dmods.allocators.numbers import NO_ARENA
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.base.words import GRANULE, Words
from dmods.target import AddressRange, address_ranges

MAIN, THREAD, MMAPPED = 0, 1, 2

_MOST_CHOICES = 100_000  # ways to leave out what only looks like a mapped chunk
_Mapped = tuple[int, int, int, int]  # chunk, start of the mapping, its end, usable bytes


@dataclass
class Layout:
    """All of malloc's memory in the address space."""

    mallocs: list[Malloc]
    page: int
    runs: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # as _engine.HeapBuilder takes them
    arenas: list[Arena] = field(default_factory=list)  # a run's arena number is an index here
    owned: Ranges = field(default_factory=Ranges)  # all memory of malloc, headers and tops included; it holds no roots
    # By arena: bytes that `system_mem` counts and that other allocators took from sbrk.
    shared: dict[int, int] = field(default_factory=dict)
    beside: int = 0  # bytes of arenas and mappings that are in no chunk: alignment, and the headers of heaps
    mmapped_count: int = 0
    mmapped_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    # Contradictions in malloc's own figures: (arena number, structure, what). The notes have them too.
    contradictions: list[tuple[Optional[int], str, str]] = field(default_factory=list)

    def contradiction(self, number: Optional[int], where: str, text: str) -> None:
        """Add a contradiction, also as a note."""
        self.contradictions.append((number, where, text))
        self.notes.append(text)


def arrange(words: Words, mallocs: list[Malloc], mappings: Sequence[AddressRange], page: int) -> Layout:
    """Return every run of every malloc."""
    layout = Layout(mallocs, page)
    anonymous = address_ranges(m for m in mappings if "w" in m.flags and m.anonymous)
    for malloc in mallocs:
        for arena in malloc.arenas:
            arena.room = _room(arena, mappings)
            number = len(layout.arenas)
            layout.arenas.append(arena)
            if not arena.main:
                _thread_arena(words, layout, number, arena)
        layout.notes.extend([*malloc.problems, *malloc.gaps])
    for number, arena in enumerate(layout.arenas):
        layout.owned.add(arena.address, arena.end)
        layout.notes.extend(
            f"arena {number} ({arena.address:#x}): {problem}" for problem in (*arena.problems, *arena.gaps)
        )
        if arena.main:
            _main_arena(words, layout, number, arena, anonymous)
    _mmapped(words, layout, anonymous, list(Ranges((m.start, m.end) for m in mappings)))
    return layout


def first_chunks(layout: Layout) -> list[int]:
    """Return the first chunk of each arena.

    The main arena has one in each of its stretches; a thread arena has one in the heap that holds it.
    """
    heaps = {(number, heap.start + heap.header): heap for number, a in enumerate(layout.arenas) for heap in a.heaps}
    first = {
        first_chunk(layout.arenas[number], heap)
        for (number, start), heap in heaps.items()
        if start == layout.arenas[number].address
    }
    return [start for start, _end, kind, *_ in layout.runs if kind == MAIN or (kind == THREAD and start in first)]


def top_size(words: Words, arena: Arena) -> int:
    """Return the bytes in the top chunk as its size field says; 0 where it cannot be a top chunk.

    A size that reaches beyond the mapping is damage.
    """
    if arena.top == arena.initial_top:
        return 0
    field_ = words.at(arena.top + words.size)
    size = 0 if field_ is None or field_ & 6 else field_ & ~7
    return size if arena.room is None or size <= arena.room else 0


def top_bytes(words: Words, arena: Arena) -> int:
    """Return the bytes in the top chunk, also where its size field is damaged and the arena says where it ends."""
    return top_size(words, arena) or arena.rest


def _room(arena: Arena, mappings: Sequence[AddressRange]) -> int:
    """Return how many bytes lie from top to the end of its memory: of its heap, or of mappings without a gap."""
    end = arena.top
    for mapping in mappings:  # by address
        if mapping.start <= end < mapping.end and ("w" in mapping.flags or end == arena.top):
            end = mapping.end
    heap = next((each for each in arena.heaps if each.start <= arena.top < each.start + each.size), None)
    return (min(end, heap.start + heap.size) if heap is not None else end) - arena.top


def _thread_arena(words: Words, layout: Layout, number: int, arena: Arena) -> None:
    size = top_size(words, arena)
    for heap in arena.heaps:
        start, end = first_chunk(arena, heap), heap.start + heap.size
        layout.owned.add(heap.start, end)
        layout.beside += min(start, end) - heap.start
        if start <= arena.top < end:
            if arena.top + size == end and arena.top % GRANULE == start % GRANULE:
                end = arena.top
            else:
                if words.at(arena.top + words.size) is not None:
                    where = f"arena {number} ({arena.address:#x})"
                    text = f"{where}: its top chunk ({arena.top:#x}) is damaged, or was just being cut"
                    layout.contradiction(number, "top", text)
                arena.rest = end - arena.top
        if end - start >= 4 * words.size:
            layout.runs.append((start, end, THREAD, number, 0))


def _main_arena(words: Words, layout: Layout, number: int, arena: Arena, anonymous: Sequence[AddressRange]) -> None:
    if arena.top == arena.initial_top:
        return
    size = top_size(words, arena)
    end = arena.top + size
    base = next((m.parameters.sbrk_base for m in layout.mallocs if arena in m.arenas and m.parameters), 0)
    starts = [_aligned(words, start) for start in (end - arena.system_mem, base) if 0 < start <= arena.top]
    starts = [start for start in starts if arena.contiguous and _begins_chunks(words, start, arena.top)]
    runs: list[tuple[int, int]] = []
    if starts:
        runs = [(starts[0], arena.top)]
        if starts[0] == _aligned(words, base):
            # The top chunk's header may be damaged. So may system_mem.
            end = min(base + arena.system_mem, arena.top + (arena.room or 0))
    else:
        # The break could not grow and memory came from mmap, or top or system_mem is damaged.
        free = layout.owned.without((m.start, m.end) for m in anonymous)
        # The first stretch may begin within a page, so it is tried separately.
        free = [part for s, e in free for part in ([(s, base), (base, e)] if s < base < e else [(s, e)])]
        runs = _engine.find_stretches(words.image, free, words.size, layout.page, arena.top)
        if not any(stop == arena.top for _, stop in runs):
            runs.extend(_run_to_top(words, arena, anonymous, runs))
    if arena.top + size != end:
        arena.rest = max(0, end - arena.top)
    for start, stop in runs:
        layout.runs.append((start, stop, MAIN, number, 0))
        # What the first chunk was moved up by, within its page, is malloc's, too (8 bytes on 32-bit machines).
        begin = start - start % layout.page if start % layout.page < GRANULE else start
        layout.owned.add(begin, end if stop == arena.top else stop)
    if not any(stop == arena.top for _, stop in runs):
        layout.owned.add(arena.top, end)
    found = sum(stop - start for start, stop in runs) + end - arena.top
    slack = arena.system_mem - found
    adds_up = 0 <= slack < layout.page * max(1, len(runs))
    layout.beside += slack if adds_up else 0
    if words.at(arena.top + words.size) is None:
        return  # the dump lacks top
    if not size or (runs and arena.top + size != end):
        layout.contradiction(
            number, "top", f"the main arena's top chunk ({arena.top:#x}) is damaged, or was just being cut"
        )
    if not adds_up:
        layout.contradiction(
            number, "arena", f"the main arena says that it has {arena.system_mem} bytes, {found} were found"
        )


def _aligned(words: Words, address: int) -> int:
    """Return the first address from `address` on where a chunk can begin: its user memory is aligned."""
    header = 2 * words.size
    return -(-(address + header) // GRANULE) * GRANULE - header


def _begins_chunks(words: Words, start: int, top: int) -> bool:
    """Return whether the first header makes sense (and the top chunk's, where it is the only chunk)."""
    field_ = words.at(start + words.size)
    if start == top:
        return True
    return field_ is not None and field_ & 7 == 1 and (field_ & ~7) % GRANULE == 0 and 0 < field_ & ~7 <= top - start


def _run_to_top(
    words: Words, arena: Arena, anonymous: Sequence[AddressRange], known: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the stretch that ends in top and begins with its mapping, for lack of a better beginning."""
    for mapping in anonymous:
        if arena.top in mapping:
            begin = max([mapping.start, *(stop for _, stop in known if mapping.start < stop <= arena.top)])
            start = _aligned(words, begin)
            return [(start, arena.top)] if arena.top - start >= 4 * words.size else []
    return []


def _mmapped(words: Words, layout: Layout, anonymous: Sequence[AddressRange], whole: list[tuple[int, int]]) -> None:
    """Add the chunks that have a mapping of their own. It may be in pieces: ``whole`` is all memory without its gaps.

    `mp_` says how many there are. Every page is tried only where the likely addresses do not add up to that.
    """
    known = [m.parameters for m in layout.mallocs if m.parameters is not None]
    complete = len(known) == len(layout.mallocs)
    count, total = sum(p.n_mmaps for p in known), sum(p.mmapped_mem for p in known)
    if complete and count == 0:
        return
    free = layout.owned.without((m.start, m.end) for m in anonymous)
    found = _engine.find_mmapped(words.image, free, whole, words.size, layout.page, False)
    if complete and len(found) <= count and not _adds_up(words, found, count, total):
        found = _engine.find_mmapped(words.image, free, whole, words.size, layout.page, True)
    if complete and len(found) > count:
        found = _without_impostors(words, found, count, total)
    if complete and not _adds_up(words, found, count, total):
        layout.contradiction(
            None,
            "mp_",
            f"malloc says that {count} blocks ({total} bytes) have mappings of their own; "
            f"{len(found)} ({_bytes(found)} bytes) were found",
        )
    layout.mmapped_count, layout.mmapped_bytes = len(found), _bytes(found)
    for chunk, base, end, usable in found:
        layout.runs.append((chunk, end, MMAPPED, NO_ARENA, usable))
        layout.beside += chunk - base
        layout.owned.add(base, end)


def _adds_up(words: Words, found: Sequence[tuple[int, int, int, int]], count: int, total: int) -> bool:
    """Return whether the chunks are as many, and as large, as `mp_` says."""
    drift = total - _bytes(found)
    if len(found) != count or drift == 0:
        return len(found) == count
    # Since 2.43 the size of such a chunk leaves out the room of a header at its end (mmap_set_chunk). mremap_chunk does
    # not, so mp_.mmapped_mem grows by a header with each resized block.
    header = 2 * words.size
    recent = any(end - chunk - usable > header for chunk, _, end, usable in found)
    return recent and drift > 0 and drift % header == 0


def _bytes(found: Iterable[tuple[int, int, int, int]]) -> int:
    return sum(end - base for _, base, end, _ in found)


def _without_impostors(words: Words, found: list[_Mapped], count: int, total: int) -> list[_Mapped]:
    """Return the chunks without memory that only looks like one, such as numbers that begin a page.

    The rest must add up to what `mp_` says, and nothing else may. All are returned where that does not tell.
    """
    # Until 2.42 no chunk leaves out a header at its end, since 2.43 most of them do.
    whole = [one for one in found if one[2] - one[0] - one[3] == 2 * words.size]
    for kept in (whole, [one for one in found if one not in whole]):
        if _adds_up(words, kept, count, total):
            return kept
    excess, more = _bytes(found) - total, len(found) - count
    if math.comb(len(found), more) <= _MOST_CHOICES:
        sizes = [end - base for _, base, end, _ in found]
        exact = [
            out
            for out in itertools.combinations(range(len(found)), more)
            if sum(sizes[number] for number in out) == excess
        ]
        if len(exact) == 1:
            return [one for number, one in enumerate(found) if number not in exact[0]]
    if more == 1:
        for i, (_, base, end, _) in enumerate(found):
            if abs(end - base - excess) < GRANULE * count + 1:
                return found[:i] + found[i + 1 :]
    return found
