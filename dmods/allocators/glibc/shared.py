"""The break that glibc's malloc shares with another allocator: tcmalloc, jemalloc with opt.dss, or a program's own.

``sysmalloc`` counts memory that other code took from sbrk as the main arena's (malloc.c: "Count foreign sbrk as
system_mem"). So the arena's figures cover it, and fenceposts alone tell it from chunks.
"""

from __future__ import annotations

from dmods import _engine
from dmods.allocators.glibc.runs import MAIN, Layout
from dmods.base.ranges import Ranges
from dmods.base.words import Words

_LEAST = 4  # words of a chunk


def give_way(words: Words, layout: Layout, others: Ranges) -> None:
    """Cut memory that other allocators proved theirs out of the main arenas, unless it lies within a chunk.

    ``others`` is the memory of all other allocators. The runs of the layout, ``owned`` and ``shared`` change.
    """
    runs: list[tuple[int, int, int, int, int]] = []
    foreign = Ranges()
    for run in layout.runs:
        start, end, kind, number, usable = run
        shared = others.within(start, end) if kind == MAIN else []
        parts = _engine.find_parts(words.image, start, end, shared, words.size) if shared else [(start, end)]
        for part in Ranges(parts).without([(start, end)]):
            foreign.add(*part)
            layout.shared[number] = layout.shared.get(number, 0) + part[1] - part[0]
        runs.extend((*part, kind, number, usable) for part in parts if part[1] - part[0] >= _LEAST * words.size)
    if foreign:
        layout.runs[:] = runs
        layout.owned = Ranges(foreign.without(layout.owned))
