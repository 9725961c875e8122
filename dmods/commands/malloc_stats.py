"""Show how much memory each arena has, and how it is used."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from dmods.allocators import figures
from dmods.allocators.directory import allocators
from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.commands._memory import USES, uses_table
from dmods.heap.heap import ProcessHeap, find_heap
from dmods.heap.ledger import LEDGER, find_ledger
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import heap_verdict, judge
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

#: Figures that every report has: those of malloc_stats(3). They are 0 where glibc's malloc was not used.
_FIGURES = (
    Column("system_bytes", "bytes"),
    Column("in_use_bytes", "bytes", null="the figures of an arena contradict each other"),
    Column("cached_bytes", "bytes"),
    Column("free_bytes", "bytes"),
    Column("top_bytes", "bytes"),
    Column("arenas", "count"),
    Column("arena_bytes", "bytes"),
    Column("mmapped_count", "count"),
    Column("mmapped_bytes", "bytes"),
    Column("max_mmapped_count", "count", null="the dump does not tell it"),
    Column("max_mmapped_bytes", "bytes", null="the dump does not tell it"),
)
_LIVE = (
    Column("live_count", "count", about="blocks of the program, as `heapsizes` counts them"),
    Column("live_bytes", "bytes", about="their usable bytes"),
)
_LINES = Schema("malloc_stats", "a line of malloc_stats(3)", (Column("line"),), when="with --glibc")


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the use of memory of each arena."""
    heap = find_heap(target)
    report = Report(notes=list(heap.notes))
    judge(report, heap_verdict(heap))
    if not heap.found and not heap.heaps:
        report.notes.insert(0, no_heap(target))
        return report
    written = [(one, one.own_report()) for one in heap.heaps] if args.glibc else []
    shown = [one for one, lines in written if lines] if args.glibc else heap.heaps
    reports = [one.report(args.bins) for one in shown]
    report.totals = {**dict.fromkeys((each.name for each in _FIGURES), 0), **_live(heap)}
    sums: Counter[str] = Counter()
    for each in reports:
        report.totals.update(each.totals)
        sums.update(each.sums)
        report.notes.extend(each.notes)
    report.totals.update(sums)
    if args.glibc:
        lines = [(line,) for _one, part in written for line in part]
        report.tables.extend([_LINES.table(lines, style="plain")] if lines else [])
    else:
        report.tables.extend(table for each in reports for table in each.tables)
        report.tables.append(uses_table(find_ledger(target)))
    report.totals["memory"] = find_ledger(target).values()
    return report


def _live(heap: ProcessHeap) -> dict[str, Value]:
    """Return how many blocks the program has, and their usable bytes, as `heapsizes` and `walk buf` count them.

    The allocator's figures are larger: they have headers, caches and what the allocator took for itself.
    """
    sizes = heap.index.engine.sizes()
    return {
        "live_count": sum(used for _size, used, _free, _own in sizes),
        "live_bytes": sum(size * used for size, used, _free, _own in sizes),
    }


def _tables() -> Sequence[Schema]:
    """Return the tables of all allocators, and those of every process."""
    return (
        *(schema for one in allocators() for schema in one.declared().figures),
        figures.FIGURES,
        _LINES,
        replace(USES, when="without --glibc"),
    )


def _totals() -> Sequence[Column]:
    """Return the totals of every process, and those of all allocators."""
    theirs = (column for one in allocators() for column in one.declared().totals)
    return (*_FIGURES, *_LIVE, *theirs, *figures.TOTALS, Column("memory", "object", fields=LEDGER))


COMMAND = Command(
    name="malloc_stats",
    summary="how much memory each arena has, and what of it is in use, cached and free",
    description=(
        "For glibc, SYSTEM BYTES and IN USE BYTES are what malloc_stats(3) and mallinfo2(3) say of the process, to\n"
        "the byte. These functions also count memory that another allocator took from sbrk: --glibc counts it too,\n"
        "the table does not. A chunk is in use if it is not free (in bins and fastbins) and not the top chunk. These\n"
        "functions count chunks in a tcache as in use: OF WHICH CACHED is the part in tcaches. FRAG is the free part\n"
        "of the memory below the top chunk. THREADS counts threads attached to the arena, HEAPS the mappings of a\n"
        "thread arena. Totals do not wrap at 4 GiB.\n\n"
        "For jemalloc, the figures are those of malloc_stats_print(3). Memory in tcaches counts as allocated: OF\n"
        "WHICH CACHED is the part in tcaches. ACTIVE counts pages in use, DIRTY and MUZZY free pages that jemalloc\n"
        "keeps. RETAINED is only address space. The size classes count the regions of all slabs, and large extents.\n\n"
        "The last table has all memory of the process, with the same numbers as maps: usable bytes of blocks in use\n"
        "and of leaked blocks, free memory (with caches and tops of arenas), and the allocator's own memory."
    ),
    run=run,
    tables=_tables,
    totals=_totals,
    verdict=True,
    arguments=(
        Argument("--glibc", action="store_true", help="the text that malloc_stats(3) writes"),
        Argument("--bins", action="store_true", help="jemalloc's size classes for each arena by itself"),
    ),
    examples=(
        ("malloc_stats", "a line for each arena, and the totals"),
        ("malloc_stats --glibc", "what the process itself would have printed"),
    ),
)
