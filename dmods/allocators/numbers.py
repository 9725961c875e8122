"""The numbers that the engine's rows have for allocators and arenas, and their names.

The engine only tells them apart. An allocator has a number by its name. An arena has one by the name of its allocator
if that has no other arena; an allocator with several reserves a range for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple

NO_ARENA = 0xFFFFFFFF  # the number of blocks that have a mapping of their own and no arena; None in a Block
_FIRST = 1 << 31  # the least number that stands for an allocator with one arena


class _Range(NamedTuple):
    first: int
    name: Callable[[int], str]


@dataclass
class _Numbers:
    """The numbers that were given. They stay the same as long as dmods runs, so that cores can be compared."""

    ranges: list[_Range] = field(default_factory=list)  # by their first number
    single: list[str] = field(default_factory=list)  # allocators with one arena each, from _FIRST on
    allocators: list[str] = field(default_factory=list)
    known: dict[Optional[int], str] = field(default_factory=dict)  # names of arenas


_numbers = _Numbers()


def reserve(first: int, name: Callable[[int], str]) -> int:
    """Give the numbers from ``first`` on to the arenas of an allocator. ``name`` names the arena that has a number."""
    _numbers.ranges = sorted([*_numbers.ranges, _Range(first, name)], key=lambda each: each.first)
    _numbers.known.clear()
    return first


def arena_number(allocator: str) -> int:
    """Return the number of the arena that stands for all blocks of that allocator."""
    if allocator not in _numbers.single:
        _numbers.single.append(allocator)
    return _FIRST + _numbers.single.index(allocator)


def allocator_number(name: str) -> int:
    """Return the number of the allocator of that name."""
    if name not in _numbers.allocators:
        _numbers.allocators.append(name)
    return _numbers.allocators.index(name)


def allocator_name(number: int) -> str:
    """Return the name of the allocator with that number."""
    return _numbers.allocators[number]


def arena_name(number: Optional[int]) -> str:
    """Return the name of an arena: "main", the number of a thread arena, "mmapped" for None, "je0", "tcmalloc".

    If a process has several mallocs, only the main arena of the first is "main". All blocks of an allocator with one
    arena are in an arena with its name.
    """
    found = _numbers.known.get(number)
    if found is None:
        found = _numbers.known[number] = _look(NO_ARENA if number is None else number)
    return found


def _look(number: int) -> str:
    place = number - _FIRST
    if 0 <= place < len(_numbers.single):
        return _numbers.single[place]
    index = bisect_right([each.first for each in _numbers.ranges], number) - 1
    return _numbers.ranges[index].name(number) if index >= 0 else str(number)
