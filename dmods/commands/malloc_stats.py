"""Show how much memory each arena has, and how it is used."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Optional

from dmods.allocators.glibc.arenas import Malloc
from dmods.allocators.jemalloc import heap as jemalloc
from dmods.allocators.jemalloc import stats as jemalloc_stats
from dmods.command import Argument, Command
from dmods.heap.arena_usage import Usage, advice, usages
from dmods.heap.blocks import arena_name
from dmods.heap.no_heap import no_heap
from dmods.heap.process_heap import ProcessHeap, find_heap
from dmods.heap.verdict import heap_verdict, judge
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

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


#: Another allocator that dmods walks: the sums over its blocks, and what its reader says.
OTHERS = (
    Column("what"),
    Column("value", "count"),
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the use of memory of each arena."""
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    judge(report, heap_verdict(heap))
    if not heap.found and not heap.arenas:
        report.notes.insert(0, no_heap(target))
        return report
    rows = usages(heap)
    report.totals = {**_totals(heap, rows), **_live(heap)}
    if not args.glibc:
        report.tables.extend(_jemallocs(heap, args.bins, report))
        report.tables.extend(_others(heap, report))
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


def _live(heap: ProcessHeap) -> dict[str, Value]:
    """Return how many blocks the program has, and their usable bytes, as `heapsizes` and `walk buf` count them.

    The allocator's figures are larger: they have headers, caches and what the allocator took for itself.
    """
    sizes = heap.index.sizes()
    return {
        "live_count": sum(live + leaked for _size, live, _free, leaked, _own in sizes),
        "live_bytes": sum(size * (live + leaked) for size, live, _free, leaked, _own in sizes),
    }


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


def _others(heap: ProcessHeap, report: Report) -> Iterator[Table]:
    """Yield a table for each other allocator that dmods walks."""
    for one in heap.walked:
        if not one.is_checked:
            continue
        used = free = used_bytes = free_bytes = 0
        for size, live, freed, leaked, own in heap.index.sizes(one.arena):
            used, free = used + live + leaked + own, free + freed
            used_bytes, free_bytes = used_bytes + size * (live + leaked + own), free_bytes + size * freed
        rows: list[tuple[Value, ...]] = [
            ("blocks in use", used),
            ("bytes in use", used_bytes),
            ("free blocks", free),
            ("free bytes", free_bytes),
            ("bytes of memory", sum(end - start for start, end in one.owned)),
            *one.statistics(),
        ]
        yield Table("allocator", OTHERS, rows, title=one.name)
        name = one.name.split()[-1]
        report.totals[f"{name}_allocated_bytes"] = used_bytes


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
        "in_use_bytes": _sum([size, *(usage.in_use for usage in rows)]),
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
    """Return the sum, or None if one of the values is not known."""
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _shown(value: Value) -> str:
    return f"{'?' if value is None else value:>10}"


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
        f"Total: {totals['system_bytes']} bytes, {_shown(totals['in_use_bytes']).strip()} in use",
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
            yield f"in use bytes     = {_shown(usage.in_use)}"
        yield "Total (incl. mmap):"
        yield f"system bytes     = {mapped + sum(usage.system for usage in own):10}"
        yield f"in use bytes     = {_shown(_sum([mapped, *(usage.in_use for usage in own)]))}"
        yield f"max mmap regions = {_shown(most)}"
        yield f"max mmap bytes   = {_shown(most_bytes)}"


def _disagreements(heap: ProcessHeap, rows: list[Usage]) -> Iterator[str]:
    """Yield a note for each arena whose bins contradict the chunks in memory."""
    found: dict[int, list[int]] = {}
    for (_, _, _, number, _), report in zip(heap.index.runs(), heap.reports):
        sums = found.setdefault(number, [0, 0])
        sums[0] += report["free_chunks"]
        sums[1] += report["free_bytes"]
    for number, (usage, arena) in enumerate(zip(rows, heap.arenas)):
        if usage.in_use is None:
            yield f"arena {usage.name}: its figures contradict each other: `heapcheck` looks closer"
        if arena.rest:
            yield (
                f"arena {usage.name}: the size field of its top chunk is damaged: TOP BYTES counts to the end of its "
                "memory"
            )
        count, size = found.get(number, (0, 0))
        if (count, size) != (usage.bin_chunks, usage.bins):
            yield (
                f"arena {usage.name}: its bins hold {usage.bin_chunks} chunks ({usage.bins} bytes), its memory has "
                f"{count} free ones ({size} bytes): `heapcheck` looks closer"
            )


COMMAND = Command(
    name="malloc_stats",
    summary="how much memory each arena has, and what of it is in use, cached and free",
    description=(
        "For glibc, SYSTEM BYTES and IN USE BYTES are what malloc_stats(3) and mallinfo2(3) say of the process, to\n"
        "the byte. A chunk is in use if it is not free (in bins and fastbins) and not the top chunk. These\n"
        "functions count chunks in a tcache as in use: OF WHICH CACHED is their part. FRAG is the free part of the\n"
        "memory below the top chunk. THREADS counts threads attached to the arena, HEAPS the mappings of a thread\n"
        "arena. Totals do not wrap at 4 GiB.\n\n"
        "For jemalloc, the figures are those of malloc_stats_print(3). Memory in tcaches counts as allocated: OF\n"
        "WHICH CACHED is its part. ACTIVE are the pages in use, DIRTY and MUZZY those kept for later. RETAINED is\n"
        "address space alone. The size classes count the regions of all slabs, and large extents."
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
