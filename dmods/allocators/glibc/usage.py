"""The memory of each arena of glibc, and how it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.allocators.glibc.caches import cached_by_arena
from dmods.allocators.glibc.runs import top_bytes
from dmods.allocators.glibc.state import State
from dmods.allocators.numbers import arena_name
from dmods.allocators.vocabulary import ADVICE_BYTES, ADVICE_SHARE
from dmods.allocators.vocabulary import unused as unused_memory
from dmods.base.dataclass import dataclass
from dmods.base.sizes import human_size
from dmods.finding import LIKELY, Finding

_SOON = "the program just freed it, and soon needs it again"


@dataclass(frozen=True)
class Usage:
    """The memory of an arena (``malloc_state.system_mem``) and its free parts, in bytes of chunks, as glibc counts.

    ``shared`` is what other allocators took from sbrk between its chunks. glibc counts that as its own; ``system`` does
    not.
    """

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
    shared: int = 0

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


def usages(heap: State) -> list[Usage]:
    """Return the use of each arena."""
    bins, caches, words = heap.bins, heap.caches, heap.process.words
    cached = cached_by_arena(words, heap.process.engine, caches)
    shared = heap.layout.shared
    return [
        Usage(
            arena_name(number),
            arena.address,
            arena.main,
            arena.system_mem - shared.get(number, 0),
            arena.max_system_mem,
            top_bytes(words, arena),
            bins.size.get(number, 0),
            bins.count.get(number, 0),
            caches.fast_bytes.get(number, 0),
            caches.fast_count.get(number, 0),
            *cached.get(number, (0, 0)),
            arena.attached,
            len(arena.heaps),
            shared.get(number, 0),
        )
        for number, arena in enumerate(heap.all)
    ]


def advice(rows: Sequence[Usage]) -> Iterator[str]:
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


def used(rows: Sequence[Usage]) -> str:
    """Return in words how much memory is free."""
    system, unused = sum(row.system for row in rows), sum(row.free + row.top + row.cached for row in rows)
    arenas = "1 arena" if len(rows) == 1 else f"{len(rows)} arenas"
    return f"{human_size(unused)} of {human_size(system)} are free, in {arenas}"


def waste(rows: Sequence[Usage]) -> list[Finding]:
    """Return what fewer arenas would save; otherwise what malloc_trim() would give back."""
    return list(_arenas(rows)) or list(_untrimmed(rows))


def _arenas(rows: Sequence[Usage]) -> Iterator[Finding]:
    threads = [row for row in rows if not row.main]
    system = sum(row.system for row in threads)
    unused = sum(row.free + row.top + row.cached for row in threads)
    if unused < ADVICE_BYTES or unused < ADVICE_SHARE * system or len(threads) < 2:
        return
    attached = sum(row.threads for row in threads)
    largest = max(threads, key=lambda row: row.system)
    # One arena could have held what is in use, at the density of the fullest one; two let threads wait less.
    cap = max(2, -(-(system - unused) // max(1, largest.system)))
    yield unused_memory(
        "arenas",
        f"{len(threads)} thread arenas hold {human_size(system)} and use {human_size(system - unused)} of it, for "
        f"{attached} threads",
        f"set MALLOC_ARENA_MAX={cap} (or the tunable glibc.malloc.arena_max): arenas then share what is free",
        unused,
        ("malloc_stats",),
        place=(largest.address, f"the largest arena: {human_size(largest.system)}"),
        alternative="the threads' load comes in bursts, and the next one needs it: then the memory is well spent",
    )


def _untrimmed(rows: Sequence[Usage]) -> Iterator[Finding]:
    system, free = sum(row.system for row in rows), sum(row.free + row.cached for row in rows)
    tops = sum(row.top for row in rows)
    if free >= ADVICE_BYTES and free >= ADVICE_SHARE * system:
        largest = max(rows, key=lambda row: row.free)
        yield unused_memory(
            "untrimmed",
            f"{human_size(free)} of the heap's {human_size(system)} are free between blocks in use",
            "malloc_trim(0) gives whole pages of it back; blocks that live long keep the rest apart",
            free,
            ("malloc_stats", "heapsizes"),
            place=(largest.address, f"the arena with most: {human_size(largest.free)} free"),
            helps=False,
            alternative=_SOON,
        )
    elif tops >= ADVICE_BYTES and tops >= ADVICE_SHARE * system:
        yield unused_memory(
            "untrimmed",
            f"{human_size(tops)} of the heap's {human_size(system)} are free at the top of arenas",
            "a lower M_TRIM_THRESHOLD (glibc.malloc.trim_threshold), or malloc_trim(0), gives it back",
            tops,
            ("malloc_stats",),
            confidence=LIKELY,
            alternative=_SOON,
        )
