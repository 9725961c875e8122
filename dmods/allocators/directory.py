"""The allocators that dmods knows: folders with a module ``allocator``, below this one or on DMODS_ALLOCATORS.

DMODS_ALLOCATORS lists folders, separated by colons, as PATH does. Each may hold folders of allocators. They become
packages of ``dmods.allocators``, so one of them imports its own modules as the others do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module

import dmods.allocators as package
from dmods.allocators.numbers import allocator_number, arena_number
from dmods.allocators.protocol import Allocator, Found, Heap
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.errors import UserError
from dmods.target import Target

PATH = "DMODS_ALLOCATORS"
_MODULE = "allocator"


@cache
def allocators() -> Sequence[Allocator]:
    """Return the allocators in the order in which they look for their heaps. Only this imports their modules.

    Raises UserError where DMODS_ALLOCATORS names no folder.
    """
    for folder in filter(None, os.environ.get(PATH, "").split(os.pathsep)):
        if not os.path.isdir(folder):
            raise UserError(f"{PATH} names {folder}, which is no folder", "it lists folders that hold allocators")
        if folder not in package.__path__:
            package.__path__.append(folder)
    names = {
        name
        for folder in package.__path__
        for name in os.listdir(folder)
        if os.path.exists(os.path.join(folder, name, f"{_MODULE}.py"))
    }
    found = [import_module(f"{package.__name__}.{name}.{_MODULE}").ALLOCATOR for name in sorted(names)]
    found.sort(key=lambda one: one.turn)
    # Numbers, and so the order of rows, do not depend on what was opened before.
    for one in found:
        arena_number(one.name)
    for one in sorted(found, key=lambda one: one.place):
        allocator_number(one.name)
    return found


@dataclass
class FoundHeaps:
    """The heaps of all allocators, in their order in lists, and the notes about them and about what was refused."""

    heaps: list[Heap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    owned: Ranges = field(default_factory=Ranges)


def find_heaps(target: Target, recorders: Sequence[tuple[int, int]]) -> FoundHeaps:
    """Return the heaps of a process. ``recorders`` is memory of recorders of allocations: it holds none."""
    found: list[tuple[int, Found]] = []
    owned = Ranges()
    for one in allocators():
        answer = one.find(target, Ranges(sorted([*owned, *recorders])))
        found.append((one.place, answer))
        owned = Ranges(sorted([*owned, *(part for heap in answer.heaps for part in heap.owned)]))
    out = FoundHeaps()
    for _place, answer in sorted(found, key=lambda each: each[0]):
        out.heaps.extend(answer.heaps)
        out.notes.extend([*answer.refusals, *(note for heap in answer.heaps for note in heap.notes)])
    for heap in out.heaps:
        others = (part for one in out.heaps if one is not heap for part in one.owned)
        heap.give_way(target, Ranges(sorted(others)))
    out.owned = Ranges(sorted(part for heap in out.heaps for part in heap.owned))
    return out


def advice(heap: Heap) -> str:
    """Return how the memory that a heap keeps can be given back. Its blocks may be known from records alone."""
    known = (one.advice for one in allocators() if one.name == heap.allocator and one.advice)
    return heap.advice() or next(known, f"{heap.allocator} keeps it.")


def release(heap: Heap) -> str:
    """Return by which call or setting a program has a heap give memory back."""
    known = (one.release for one in allocators() if one.name == heap.allocator and one.release)
    return next(known, "look how this allocator is told to give memory back")
