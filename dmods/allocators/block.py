"""A block of a heap, of any allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from dmods.allocators.numbers import NO_ARENA, allocator_name
from dmods.base.dataclass import dataclass

if TYPE_CHECKING:
    from dmods import _engine

#: States of a block, as the engine numbers them: in use; free; leaked directly and indirectly; the allocator's own.
LIVE, FREE, DIRECT, INDIRECT, OWN = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class Block:
    """A block of the heap, live or free. ``size`` is malloc_usable_size, or what was asked for if that is all we know.

    ``arena`` is a number that ``numbers.arena_name`` names. It is None for a block of glibc with a mapping of its own.
    ``single``: the block has such a mapping, or an extent of its own. ``allocator`` is the name of one, "jemalloc" or
    "glibc malloc", or of one that only the auditor knows.
    """

    address: int
    size: int
    state: int
    arena: Optional[int]
    single: bool
    kept_count: int  # for a direct leak: other blocks and bytes that it keeps alive
    kept_bytes: int
    allocator: str

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


def block_of_row(row: _engine.Block) -> Block:
    """Return the block that a row of the engine stands for."""
    arena = None if row.arena == NO_ARENA else row.arena
    kept = (row.kept_count, row.kept_bytes)
    return Block(row.address, row.size, row.state, arena, row.single, *kept, allocator_name(row.allocator))
