"""Memory that the allocator holds and the program does not use: too many arenas, or memory that is not trimmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmods.allocators.jemalloc import stats
from dmods.allocators.walked import arena_number
from dmods.base.sizes import human_size
from dmods.heap.arena_usage import ADVICE_BYTES, ADVICE_SHARE, Usage, usages
from dmods.triage.facts import ProcessFacts
from dmods.triage.finding import CERTAIN, LIKELY, POSSIBLE, WASTE, Check, Evidence, Finding, Measured, Said

# How a program has its allocator give memory back.
_RELEASE = {
    "tcmalloc": "MallocExtension::ReleaseFreeMemory(), or a smaller TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
    "mimalloc": "mi_collect(true), or a shorter MIMALLOC_PURGE_DELAY (MIMALLOC_RESET_DELAY before 2.1)",
    "musl's malloc": "musl gives pages back where whole groups are free: free blocks of one size together",
}


def run(facts: ProcessFacts) -> Iterator[Said]:
    """Yield what fewer arenas would save, and what malloc_trim() would give back."""
    rows = usages(facts.heap)
    if rows:
        system, unused = sum(row.system for row in rows), sum(row.free + row.top + row.cached for row in rows)
        arenas = "1 arena" if len(rows) == 1 else f"{len(rows)} arenas"
        yield Measured(f"{human_size(unused)} of {human_size(system)} are free, in {arenas}")
    yield from _walked(facts)
    found = list(_arenas(rows)) or list(_untrimmed(rows))
    yield from found
    for one, caches in zip(facts.heap.jemallocs, facts.heap.jemalloc_caches):
        each = stats.usages(facts.heap.words, one, caches)
        active, used = sum(arena.active for arena in each), sum(arena.allocated - arena.cached for arena in each)
        yield Measured(f"{one.name}: {human_size(used)} of blocks in {human_size(active)} of pages")
        if active - used >= ADVICE_BYTES and active - used >= ADVICE_SHARE * active:
            yield Finding(
                "fragmentation",
                WASTE,
                CERTAIN,
                f"{one.name} has {human_size(active)} of pages in use for {human_size(used)} of blocks",
                "blocks of one size that live long and short share pages: free the long-lived ones together",
                next=("malloc_stats", "heapsizes"),
                weight=active - used,
            )


def _walked(facts: ProcessFacts) -> Iterator[Said]:
    """Yield what allocators other than glibc's and jemalloc keep free: in lists of threads, and between blocks."""
    for one in facts.heap.walked:
        if one.collected or not one.serves_malloc:
            continue
        rows = facts.heap.index.sizes(arena_number(one.name))
        used, free = sum(row[0] * (row[1] + row[3]) for row in rows), sum(row[0] * row[2] for row in rows)
        yield Measured(f"{one.name}: {human_size(used)} in use, {human_size(free)} free")
        if free >= ADVICE_BYTES and free >= ADVICE_SHARE * (used + free):
            most = max(rows, key=lambda row: row[0] * row[2])
            yield Finding(
                "untrimmed",
                WASTE,
                CERTAIN,
                f"{one.name} keeps {human_size(free)} free beside {human_size(used)} in use; {most[2]:,} of the free "
                f"blocks have {most[0]:,} bytes",
                _RELEASE.get(one.name, "look how this allocator is told to give memory back"),
                next=("heapsizes",),
                weight=free,
                remedy_confidence=POSSIBLE,
                alternative="the program just freed it, and soon needs it again; or the system has these pages back",
            )


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
    yield Finding(
        "arenas",
        WASTE,
        CERTAIN,
        f"{len(threads)} thread arenas hold {human_size(system)} and use {human_size(system - unused)} of it, for "
        f"{attached} threads",
        f"set MALLOC_ARENA_MAX={cap} (or the tunable glibc.malloc.arena_max): arenas then share what is free",
        (Evidence(largest.address, f"the largest arena: {human_size(largest.system)}"),),
        ("malloc_stats",),
        weight=unused,
        alternative="the threads' load comes in bursts, and the next one needs it: then the memory is well spent",
    )


def _untrimmed(rows: Sequence[Usage]) -> Iterator[Finding]:
    system, free = sum(row.system for row in rows), sum(row.free + row.cached for row in rows)
    tops = sum(row.top for row in rows)
    if free >= ADVICE_BYTES and free >= ADVICE_SHARE * system:
        largest = max(rows, key=lambda row: row.free)
        yield Finding(
            "untrimmed",
            WASTE,
            CERTAIN,
            f"{human_size(free)} of the heap's {human_size(system)} are free between blocks in use",
            "malloc_trim(0) gives whole pages of it back; blocks that live long keep the rest apart",
            (Evidence(largest.address, f"the arena with most: {human_size(largest.free)} free"),),
            ("malloc_stats", "heapsizes"),
            weight=free,
            remedy_confidence=POSSIBLE,
            alternative="the program just freed it, and soon needs it again",
        )
    elif tops >= ADVICE_BYTES and tops >= ADVICE_SHARE * system:
        yield Finding(
            "untrimmed",
            WASTE,
            LIKELY,
            f"{human_size(tops)} of the heap's {human_size(system)} are free at the top of arenas",
            "a lower M_TRIM_THRESHOLD (glibc.malloc.trim_threshold), or malloc_trim(0), gives it back",
            next=("malloc_stats",),
            weight=tops,
            alternative="the program just freed it, and soon needs it again",
        )


CHECK = Check(
    "waste",
    "at least 64 MB, and half of what an allocator or its arenas hold, are free",
    run,
    needs=("heap",),
    seconds=60,
)
