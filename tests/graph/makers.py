"""The functions that made the blocks of a real program, as witnesses of their types.

The auditor records the callers. They know nothing of pointers, fields and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dmods.corefile.target import CoreFile
from dmods.graph.types.typegraph import TypeGraph
from dmods.heap.heap import find_heap
from dmods.records.callers import Callers
from dmods.records.model import Stack


@dataclass
class Compared:
    recorded: int = 0
    typed: int = 0
    judged: int = 0  # bytes of typed blocks whose maker is known
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)


def _maker(callers: Callers, stack: Stack, allocators: tuple[str, ...]) -> str:
    """Return the function that wanted the block: the first one that is no allocator, also where it was inlined."""
    for frame in stack.frames:
        for function in [line.function for line in callers.source(frame)] or [callers.name(frame)]:
            if function and not function.startswith(allocators):
                return function.partition("+")[0].partition(".")[0]
    return ""


def compared(
    target: CoreFile, graph: TypeGraph, makes: Mapping[str, tuple[str, ...]], allocators: tuple[str, ...]
) -> Compared:
    """Compare the types with the functions that made the blocks. ``makes`` are the types that a function makes.

    ``allocators`` are beginnings of the names of functions that only allocate for others.
    """
    heap, callers = find_heap(target), Callers(target, lines=True)
    out, makers = Compared(), {}
    for record in heap.records.all():
        block = heap.block_at(record.address)
        if block is None:
            continue
        stack = record.stack
        key = tuple(stack.frames)
        if key not in makers:
            makers[key] = _maker(callers, stack, allocators)
        out.recorded += block.size
        name = graph.name(block)
        if name is None:
            continue
        out.typed += block.size
        allowed = makes.get(makers[key])
        if allowed is not None:
            out.judged += block.size
            out.wrong[makers[key], name] += name not in allowed
    return out
