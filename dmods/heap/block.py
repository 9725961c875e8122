"""A block of the heap, as commands see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from dmods.allocators.glibc import runs
from dmods.allocators.jemalloc.heap import is_arena

#: States of a block, as the engine numbers them: in use; free; leaked directly and indirectly; the allocator's own.
LIVE, FREE, DIRECT, INDIRECT, OWN = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class Block:
    """A block of the heap, live or free. ``size`` is malloc_usable_size.

    ``arena`` is a number that ``blocks.arena_name`` names. It is None for a block of glibc with a mapping of its own.
    ``single``: the block has such a mapping, or a jemalloc extent of its own.
    """

    address: int
    size: int
    state: int
    arena: Optional[int]
    single: bool
    kept_count: int  # for a direct leak: other blocks and bytes that it keeps alive
    kept_bytes: int

    @property
    def allocator(self) -> str:
        """Return the name of the allocator: "jemalloc" or "glibc malloc"."""
        return "jemalloc" if self.arena is not None and is_arena(self.arena) else "glibc malloc"

    @property
    def cache(self) -> str:
        """Return the name that libumem would show for the block's cache: "malloc-56"."""
        return f"{self.allocator.split()[-1]}-{self.size}"

    @property
    def end(self) -> int:
        """Return the address after the last usable byte."""
        return self.address + self.size

    @property
    def leaked(self) -> bool:
        """Return whether the block is a direct or an indirect leak. An allocator's own block is not one."""
        return self.state in (DIRECT, INDIRECT)


def block_of_row(row: tuple[int, int, int, int, bool, int, int]) -> Block:
    """Return the block that a row of the engine stands for."""
    address, size, state, arena, single, count, kept = row
    return Block(address, size, state, None if arena == runs.NO_ARENA else arena, single, count, kept)
