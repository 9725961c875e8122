"""The figures of glibc's malloc, as malloc_stats(3) and mallinfo2(3) have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from dmods.allocators.glibc.state import State
from dmods.allocators.glibc.structures import Malloc
from dmods.allocators.glibc.usage import Usage, advice
from dmods.allocators.vocabulary import Statistics
from dmods.report import Column, Schema, Value

ARENAS = Schema(
    "arenas",
    "an arena of glibc's malloc",
    (
        Column("arena"),
        Column("address", "address"),
        Column("system_bytes", "bytes", title="SYSTEM BYTES"),
        Column("in_use_bytes", "bytes", title="IN USE BYTES", null="the figures of the arena contradict each other"),
        Column("cached_bytes", "bytes", title="OF WHICH CACHED"),
        Column("free_bytes", "bytes", title="FREE BYTES"),
        Column("free_chunks", "count", title="FREE CHUNKS"),
        Column("top_bytes", "bytes", title="TOP BYTES"),
        Column("fragmentation", "percent", title="FRAG", about="the free part"),
        Column("threads", "count"),
        Column("heaps", "count", null="it is the main arena"),
        Column("max_system_bytes", "bytes", hidden=True),
        Column("bin_bytes", "bytes", hidden=True),
        Column("bin_chunks", "count", hidden=True),
        Column("fastbin_bytes", "bytes", hidden=True),
        Column("fastbin_chunks", "count", hidden=True),
        Column("cached_chunks", "count", hidden=True),
    ),
    when="for glibc's malloc, without --glibc",
)


def report(heap: State, rows: Sequence[Usage]) -> Statistics:
    """Return a line for each arena, and the totals."""
    totals = _totals(heap, rows)
    table = ARENAS.table([_row(usage) for usage in rows], footer=_footer(totals))
    return Statistics([table], totals, [*_disagreements(heap, rows), *advice(rows)])


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


def _totals(heap: State, rows: Sequence[Usage]) -> dict[str, Value]:
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


def _mmapped(heap: State, malloc: Malloc) -> tuple[int, int, Optional[int], Optional[int]]:
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


def own_lines(heap: State, rows: Sequence[Usage]) -> Iterator[str]:
    """Yield what malloc_stats(3) writes, a part for each malloc. Here, the numbers do not wrap at 4 GiB."""
    rest = iter(rows)
    for malloc in heap.layout.mallocs:
        own = [usage for usage, _ in zip(rest, malloc.arenas)]
        _, mapped, most, most_bytes = _mmapped(heap, malloc)
        for number, usage in enumerate(own):
            yield f"Arena {number}:"
            yield f"system bytes     = {usage.system + usage.shared:10}"
            yield f"in use bytes     = {_shown(_sum([usage.in_use, usage.shared]))}"
        yield "Total (incl. mmap):"
        yield f"system bytes     = {mapped + sum(usage.system + usage.shared for usage in own):10}"
        used = [figure for usage in own for figure in (usage.in_use, usage.shared)]
        yield f"in use bytes     = {_shown(_sum([mapped, *used]))}"
        yield f"max mmap regions = {_shown(most)}"
        yield f"max mmap bytes   = {_shown(most_bytes)}"


def _disagreements(heap: State, rows: Sequence[Usage]) -> Iterator[str]:
    """Yield a note for each arena whose bins contradict the chunks in memory."""
    found: dict[int, list[int]] = {}
    for (_, _, _, number, _), report in zip(heap.process.engine.runs(), heap.process.reports):
        sums = found.setdefault(number, [0, 0])
        sums[0] += report["free_chunks"]
        sums[1] += report["free_bytes"]
    for number, (usage, arena) in enumerate(zip(rows, heap.all)):
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
