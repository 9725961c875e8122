"""The memory of each arena of glibc, and how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.allocators.glibc.caches import cached_by_arena
from dmods.allocators.glibc.runs import top_bytes
from dmods.base.dataclass import dataclass
from dmods.heap.blocks import arena_name
from dmods.heap.process_heap import ProcessHeap

ADVICE_BYTES = 64 << 20  # below this much unused memory no advice is given
ADVICE_SHARE = 0.5


@dataclass(frozen=True)
class Usage:
    """The memory of an arena (``malloc_state.system_mem``) and its free parts, in bytes of chunks, as glibc counts."""

    name: str
    address: int
    main: bool
    system: int
    max_system: int
    top: int
    bins: int
    bin_chunks: int
    fast: int
    fast_chunks: int
    cached: int
    cached_chunks: int
    threads: int
    heaps: int

    @property
    def free(self) -> int:
        """Return the bytes in bins and fastbins."""
        return self.bins + self.fast

    @property
    def in_use(self) -> Optional[int]:
        """Return the bytes outside bins, fastbins and top, as int_mallinfo() counts them. None if damaged."""
        used = self.system - self.free - self.top
        return used if used >= 0 else None

    @property
    def fragmentation(self) -> float:
        """Return the share of the memory below top that is free, in percent."""
        below = self.system - self.top
        return 100 * self.free / below if below > 0 else 0.0


def usages(heap: ProcessHeap) -> list[Usage]:
    """Return the use of each of ``heap.arenas``."""
    bins, caches = heap.bins(), heap.caches
    cached = cached_by_arena(heap.words, heap.index, caches)
    return [
        Usage(
            arena_name(number),
            arena.address,
            arena.main,
            arena.system_mem,
            arena.max_system_mem,
            top_bytes(heap.words, arena),
            bins.size.get(number, 0),
            bins.count.get(number, 0),
            caches.fast_bytes.get(number, 0),
            caches.fast_count.get(number, 0),
            *cached.get(number, (0, 0)),
            arena.attached,
            len(arena.heaps),
        )
        for number, arena in enumerate(heap.arenas)
    ]


def advice(rows: list[Usage]) -> Iterator[str]:
    """Yield advice if arenas hold much memory that they do not use."""
    thread = [usage for usage in rows if not usage.main]
    system, unused = sum(u.system for u in thread), sum(u.free + u.top for u in thread)
    if unused >= ADVICE_BYTES and unused >= ADVICE_SHARE * system:
        yield (
            f"{len(thread)} thread arenas hold {system} bytes and use {system - unused}: fewer arenas "
            "(MALLOC_ARENA_MAX, glibc.malloc.arena_max) share what is free"
        )
    system, unused = sum(u.system for u in rows), sum(u.free for u in rows)
    if unused >= ADVICE_BYTES and unused >= ADVICE_SHARE * system:
        yield (
            f"{unused} bytes of {system} are free between blocks in use: malloc_trim(0) gives whole pages of it back"
        )
