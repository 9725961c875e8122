"""Find pymalloc's arenas and prove its pools.

Each interpreter (3.12 and later; before, the process) has one array of ``arena_object``. A pool says its index in the
array. So the pools are found first, and an array is believed if it has, at that index, an arena with the pool.
"""

from __future__ import annotations

from dmods._engine import Pymalloc
from dmods.allocators.protocol import Found
from dmods.base.ranges import Ranges
from dmods.modules.find import writable_segments
from dmods.runtimes.python.find import find_python
from dmods.target import Target

# (bytes of an arena, bytes of a pool): since 3.10, and before. A build may choose the other (WITH_PYMALLOC_RADIX_TREE).
_NEW, _OLD = (1 << 20, 16 << 10), (256 << 10, 4 << 10)


def find_pymalloc(target: Target, owned: Ranges) -> Found:
    """Return the heap of pymalloc, if CPython is there and uses it."""
    found = find_python(target)
    if found.python is None:
        told = found.refusal and found.started  # a Python that never started has no objects
        return Found(refusals=[f"{found.refusal}: its objects are not known"] if told else [])
    python = found.python
    memory = Ranges((m.start, m.start + m.dumped) for m in target.mappings() if m.anonymous and m.dumped)
    rest = owned.without(memory)
    states = [(at, at + (1 << 20)) for at in python.interpreters]
    image = target.image()
    data = [part for start, end in writable_segments(target) for part in image.covered(start, end)]
    places = [data, states, list(memory)]
    sizes = (_OLD, _NEW) if python.layout.version < (3, 10) else (_NEW, _OLD)
    for arena, pool in sizes:
        heap = Pymalloc(image, rest, places, arena, pool)
        if heap.arenas:
            from dmods.allocators.pymalloc.heap import heap_of

            return Found([heap_of(heap)])
    return Found()
