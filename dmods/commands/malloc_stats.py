"""Show how much memory each arena has, and how it is used."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from dmods.allocators.glibc.arenas import Malloc
from dmods.allocators.glibc.caches import cached_by_arena
from dmods.allocators.glibc.runs import top_size
from dmods.allocators.jemalloc import heap as jemalloc
from dmods.allocators.jemalloc import stats as jemalloc_stats
from dmods.command import Argument, Command
from dmods.heap.blocks import arena_name
from dmods.heap.process_heap import NO_HEAP, ProcessHeap, find_heap
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

_ADVICE_BYTES = 64 << 20  # below this much unused memory no advice is given
_ADVICE_SHARE = 0.5

ARENAS = (
    Column("arena"),
    Column("address", "address"),
    Column("system_bytes", "bytes", title="SYSTEM BYTES"),
    Column("in_use_bytes", "bytes", title="IN USE BYTES"),
    Column("cached_bytes", "bytes", title="OF WHICH CACHED"),
    Column("free_bytes", "bytes", title="FREE BYTES"),
    Column("free_chunks", "count", title="FREE CHUNKS"),
    Column("top_bytes", "bytes", title="TOP BYTES"),
    Column("fragmentation", "percent", title="FRAG"),
    Column("threads", "count"),
    Column("heaps", "count"),
    Column("max_system_bytes", "bytes", hidden=True),
    Column("bin_bytes", "bytes", hidden=True),
    Column("bin_chunks", "count", hidden=True),
    Column("fastbin_bytes", "bytes", hidden=True),
    Column("fastbin_chunks", "count", hidden=True),
    Column("cached_chunks", "count", hidden=True),
)


JEMALLOC_ARENAS = (
    Column("arena"),
    Column("address", "address"),
    Column("allocated_bytes", "bytes", title="ALLOCATED BYTES"),
    Column("cached_bytes", "bytes", title="OF WHICH CACHED"),
    Column("active_bytes", "bytes", title="ACTIVE"),
    Column("dirty_bytes", "bytes", title="DIRTY"),
    Column("muzzy_bytes", "bytes", title="MUZZY"),
    Column("retained_bytes", "bytes", title="RETAINED"),
    Column("extents", "count"),
    Column("tcaches", "count"),
    Column("small_bytes", "bytes", hidden=True),
    Column("large_bytes", "bytes", hidden=True),
)
JEMALLOC_CLASSES = (
    Column("arena"),
    Column("size", "bytes"),
    Column("kind"),
    Column("slabs", "count"),
    Column("regions", "count"),
    Column("allocated", "count"),
    Column("cached", "count", title="OF WHICH CACHED"),
    Column("bytes", "bytes"),
    Column("used", "percent", title="USED"),
)


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
    def in_use(self) -> int:
        """Return the bytes outside bins, fastbins and top, as int_mallinfo() counts them. Negative if damaged."""
        return self.system - self.free - self.top

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
            top_size(heap.words, arena),
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


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the use of memory of each arena."""
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    if not heap.found and not heap.arenas:
        report.notes.insert(0, NO_HEAP)
        return report
    rows = usages(heap)
    report.totals = _totals(heap, rows)
    if not args.glibc:
        report.tables.extend(_jemallocs(heap, args.bins, report))
    if not rows:
        return report
    if args.glibc:
        report.tables.append(
            Table("malloc_stats", (Column("line"),), [(line,) for line in _text(heap, rows)], style="plain")
        )
    else:
        report.tables.insert(0, Table("arenas", ARENAS, [_row(usage) for usage in rows], footer=_footer(report.totals)))
    report.notes.extend(_disagreements(heap, rows))
    report.notes.extend(advice(rows))
    return report


def _jemallocs(heap: ProcessHeap, every_bin: bool, report: Report) -> Iterator[Table]:
    """Yield two tables for each jemalloc: its arenas, and its size classes (of all arenas, or of each)."""
    sums: Counter[str] = Counter()
    for order, (one, caches) in enumerate(zip(heap.jemallocs, heap.jemalloc_caches)):
        found = jemalloc_stats.usages(heap.words, one, caches)
        first = jemalloc.first_arena(order)
        rows = [_jemalloc_row(arena_name(first + usage.arena), usage) for usage in found]
        yield Table("jemalloc_arenas", JEMALLOC_ARENAS, rows, title=f"{one.name}, layout {one.layout.name}")
        classes = [each for usage in found for each in usage.classes]
        if not every_bin:
            classes = list(jemalloc_stats.together(classes))
        rows = [_class_row(None if not every_bin else arena_name(first + each.arena), each) for each in classes]
        columns = JEMALLOC_CLASSES if every_bin else JEMALLOC_CLASSES[1:]
        yield Table("jemalloc_classes", columns, [row if every_bin else row[1:] for row in rows], title="Size classes")
        for usage in found:
            sums["jemalloc_allocated_bytes"] += usage.allocated
            sums["jemalloc_cached_bytes"] += usage.cached
            sums["jemalloc_active_bytes"] += usage.active
            sums["jemalloc_dirty_bytes"] += usage.dirty
            sums["jemalloc_muzzy_bytes"] += usage.muzzy
            sums["jemalloc_retained_bytes"] += usage.retained
        sums["jemalloc_arenas"] += len(found)
        sums["jemalloc_metadata_bytes"] += one.base.size()
    report.totals.update(sums)


def _jemalloc_row(name: str, usage: jemalloc_stats.Usage) -> tuple[Value, ...]:
    return (
        name,
        usage.address,
        usage.allocated,
        usage.cached,
        usage.active,
        usage.dirty,
        usage.muzzy,
        usage.retained,
        usage.extents,
        usage.tcaches,
        usage.small,
        usage.large,
    )


def _class_row(arena: Optional[str], each: jemalloc_stats.SizeClass) -> tuple[Value, ...]:
    used = 100 * each.allocated / each.regions if each.regions else 0.0
    return (
        arena,
        each.size,
        "small" if each.small else "large",
        each.slabs or None,
        each.regions,
        each.allocated,
        each.cached,
        each.bytes,
        used,
    )


def _row(usage: Usage) -> tuple[Value, ...]:
    return (
        usage.name,
        usage.address,
        usage.system,
        usage.in_use,
        usage.cached,
        usage.free,
        usage.bin_chunks + usage.fast_chunks,
        usage.top,
        usage.fragmentation,
        usage.threads,
        usage.heaps or None,
        usage.max_system,
        usage.bins,
        usage.bin_chunks,
        usage.fast,
        usage.fast_chunks,
        usage.cached_chunks,
    )


def _totals(heap: ProcessHeap, rows: list[Usage]) -> dict[str, Value]:
    mapped = [_mmapped(heap, malloc) for malloc in heap.layout.mallocs]
    count, size = sum(m[0] for m in mapped), sum(m[1] for m in mapped)
    arenas = sum(usage.system for usage in rows)
    return {
        "system_bytes": arenas + size,
        "in_use_bytes": sum(usage.in_use for usage in rows) + size,
        "cached_bytes": sum(usage.cached for usage in rows),
        "free_bytes": sum(usage.free for usage in rows),
        "top_bytes": sum(usage.top for usage in rows),
        "arenas": len(rows),
        "arena_bytes": arenas,
        "mmapped_count": count,
        "mmapped_bytes": size,
        "max_mmapped_count": _sum(m[2] for m in mapped),
        "max_mmapped_bytes": _sum(m[3] for m in mapped),
    }


def _sum(values: Iterable[Optional[int]]) -> Optional[int]:
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _mmapped(heap: ProcessHeap, malloc: Malloc) -> tuple[int, int, Optional[int], Optional[int]]:
    """Return the number and bytes of mmapped chunks, and the largest number and bytes there ever were.

    glibc's ``mp_`` has these figures. Without it, they are what the dump holds now.
    """
    parameters = malloc.parameters
    if parameters is None:
        return (heap.layout.mmapped_count, heap.layout.mmapped_bytes, None, None)
    return (parameters.n_mmaps, parameters.mmapped_mem, parameters.max_n_mmaps, parameters.max_mmapped_mem)


def _footer(totals: dict[str, Value]) -> list[str]:
    return [
        "-" * 72,
        f"{totals['mmapped_count']} blocks with mappings of their own: {totals['mmapped_bytes']} bytes",
        f"Total: {totals['system_bytes']} bytes, {totals['in_use_bytes']} in use",
    ]


def _text(heap: ProcessHeap, rows: list[Usage]) -> Iterator[str]:
    """Yield what malloc_stats(3) writes, a part for each malloc. Here, the numbers do not wrap at 4 GiB."""
    rest = iter(rows)
    for malloc in heap.layout.mallocs:
        own = [usage for usage, _ in zip(rest, malloc.arenas)]
        _, mapped, most, most_bytes = _mmapped(heap, malloc)
        for number, usage in enumerate(own):
            yield f"Arena {number}:"
            yield f"system bytes     = {usage.system:10}"
            yield f"in use bytes     = {usage.in_use:10}"
        yield "Total (incl. mmap):"
        yield f"system bytes     = {mapped + sum(usage.system for usage in own):10}"
        yield f"in use bytes     = {mapped + sum(usage.in_use for usage in own):10}"
        yield f"max mmap regions = {'?' if most is None else most:>10}"
        yield f"max mmap bytes   = {'?' if most_bytes is None else most_bytes:>10}"


def _disagreements(heap: ProcessHeap, rows: list[Usage]) -> Iterator[str]:
    """Yield a note for each arena whose bins contradict the chunks in memory."""
    found: dict[int, list[int]] = {}
    for (_, _, _, number, _), report in zip(heap.index.runs(), heap.reports):
        sums = found.setdefault(number, [0, 0])
        sums[0] += report["free_chunks"]
        sums[1] += report["free_bytes"]
    for number, usage in enumerate(rows):
        count, size = found.get(number, (0, 0))
        if (count, size) != (usage.bin_chunks, usage.bins):
            yield (
                f"arena {usage.name}: its bins hold {usage.bin_chunks} chunks ({usage.bins} bytes), its memory has "
                f"{count} free ones ({size} bytes): `heapcheck` looks closer"
            )


def advice(rows: list[Usage]) -> Iterator[str]:
    """Yield advice if arenas hold much memory that they do not use."""
    thread = [usage for usage in rows if not usage.main]
    system, unused = sum(u.system for u in thread), sum(u.free + u.top for u in thread)
    if unused >= _ADVICE_BYTES and unused >= _ADVICE_SHARE * system:
        yield (
            f"{len(thread)} thread arenas hold {system} bytes and use {system - unused}: fewer arenas "
            "(MALLOC_ARENA_MAX, glibc.malloc.arena_max) share what is free"
        )
    system, unused = sum(u.system for u in rows), sum(u.free for u in rows)
    if unused >= _ADVICE_BYTES and unused >= _ADVICE_SHARE * system:
        yield (
            f"{unused} bytes of {system} are free between blocks in use: malloc_trim(0) gives whole pages of it back"
        )


COMMAND = Command(
    name="malloc_stats",
    summary="how much memory each arena has, and what of it is in use, cached and free",
    description=(
        "SYSTEM BYTES and IN USE BYTES are what malloc_stats(3) and mallinfo2(3) say of the process, to the byte: in\n"
        "use is all that is neither free (bins and fastbins) nor in the top chunk. Chunks in a tcache count as in use\n"
        "there: OF WHICH CACHED is their part. FRAG is the free part of what lies below top. THREADS counts threads\n"
        "attached to the arena, HEAPS the mappings of a thread arena. Totals do not wrap at 4 GiB.\n"
        "Of jemalloc the figures are those of malloc_stats_print(3): what tcaches hold counts as allocated, OF WHICH\n"
        "CACHED is their part; ACTIVE are the pages in use, DIRTY and MUZZY those kept for later, RETAINED address\n"
        "space alone. Size classes: the regions of all slabs, and large extents."
    ),
    run=run,
    arguments=(
        Argument("--glibc", action="store_true", help="the text that malloc_stats(3) writes"),
        Argument("--bins", action="store_true", help="jemalloc's size classes for each arena by itself"),
    ),
    examples=(
        ("malloc_stats", "a line for each arena, and the totals"),
        ("malloc_stats --glibc", "what the process itself would have printed"),
    ),
)
