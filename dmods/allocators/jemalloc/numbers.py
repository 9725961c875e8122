"""The numbers of jemalloc's arenas among those of the process."""

from __future__ import annotations

from dmods.allocators.numbers import reserve

NAME = "jemalloc"
_ARENAS = 1 << 16  # arena numbers of each jemalloc (MALLOCX_ARENA_LIMIT is 4095)


def first_arena(order: int) -> int:
    """Return the number, among the arenas of a heap, of arena 0 of the jemalloc at place `order` (0: the first)."""
    return (order + 1) * _ARENAS


def split(number: int) -> tuple[int, int]:
    """Return the place of the jemalloc (0: the first) and the arena's number in it."""
    order, arena = divmod(number, _ARENAS)
    return order - 1, arena


def arena_name(number: int) -> str:
    """Return "je0", or for a second jemalloc "je2.0"."""
    order, arena = split(number)
    return f"je{order + 1}.{arena}" if order else f"je{arena}"


reserve(first_arena(0), arena_name)
