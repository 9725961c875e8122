"""The totals of a search for leaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmods.base.dataclass import dataclass
from dmods.heap.block import allocator_name

if TYPE_CHECKING:
    from dmods import _engine


@dataclass(frozen=True)
class Group:
    """Direct leaks of one size, from one kind of allocator."""

    size: int
    allocator: str
    single: bool
    count: int
    first: int  # lowest address
    kept_count: int
    kept_bytes: int

    @property
    def cache(self) -> str:
        """Return the name that libumem would show for the cache: "malloc-56"."""
        return f"{self.allocator.split()[-1]}-{self.size}"


@dataclass(frozen=True)
class Leaks:
    """The totals of a search for leaks, in usable bytes, and what the search cost."""

    direct_count: int
    direct_bytes: int
    indirect_count: int
    indirect_bytes: int
    groups: list[Group]
    root_bytes: int
    root_candidates: int
    reached: int
    seconds: float
    cpu_seconds: float
    # Blocks that no other root holds: (an address in the block that a vector register holds, how many blocks it keeps)
    by_vectors: list[tuple[int, int]]


def group_of_row(row: _engine.Group) -> Group:
    """Return the group that a row of the engine stands for."""
    allocator = allocator_name(row.allocator)
    return Group(row.size, allocator, row.single, row.count, row.first, row.kept_count, row.kept_bytes)
