"""The figures of jemalloc, as its malloc_stats_print(3) has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Optional

from dmods.allocators.jemalloc.find import Jemalloc
from dmods.allocators.jemalloc.numbers import first_arena
from dmods.allocators.jemalloc.stats import SizeClass, Usage, together
from dmods.allocators.numbers import arena_name
from dmods.allocators.vocabulary import Declared, Statistics
from dmods.report import Column, Schema, Value

ARENAS = Schema(
    "jemalloc_arenas",
    "an arena of jemalloc",
    (
        Column("arena"),
        Column("address", "address", null="it is not known"),
        Column("allocated_bytes", "bytes", title="ALLOCATED BYTES"),
        Column("cached_bytes", "bytes", title="OF WHICH CACHED", about="a part of allocated_bytes"),
        Column("active_bytes", "bytes", title="ACTIVE"),
        Column("dirty_bytes", "bytes", title="DIRTY"),
        Column("muzzy_bytes", "bytes", title="MUZZY"),
        Column("retained_bytes", "bytes", title="RETAINED"),
        Column("extents", "count"),
        Column("tcaches", "count"),
        Column("small_bytes", "bytes", hidden=True),
        Column("large_bytes", "bytes", hidden=True),
    ),
    when="for jemalloc",
)
CLASSES = Schema(
    "jemalloc_classes",
    "a size class of jemalloc",
    (
        Column("arena", when="with --bins"),
        Column("size", "bytes"),
        Column("kind", about="small or large"),
        Column("slabs", "count", null="it is a large class"),
        Column("regions", "count"),
        Column("allocated", "count"),
        Column("cached", "count", title="OF WHICH CACHED", about="a part of allocated"),
        Column("bytes", "bytes"),
        Column("used", "percent", title="USED"),
    ),
    when="for jemalloc",
)

DECLARED = Declared(
    (ARENAS, CLASSES),
    (
        *(
            Column(f"jemalloc_{what}_bytes", "bytes", when="for jemalloc")
            for what in ("allocated", "cached", "active", "dirty", "muzzy", "retained", "metadata")
        ),
        Column("jemalloc_arenas", "count", when="for jemalloc"),
    ),
)


def report(one: Jemalloc, order: int, found: Sequence[Usage], every_class: bool) -> Statistics:
    """Return two tables: the arenas, and the size classes (of all arenas, or of each)."""
    first = first_arena(order)
    rows = [_arena_row(arena_name(first + usage.arena), usage) for usage in found]
    arenas = ARENAS.table(rows, title=f"{one.name}, layout {one.layout.name}")
    classes = [each for usage in found for each in usage.classes]
    if not every_class:
        classes = list(together(classes))
    rows = [_class_row(None if not every_class else arena_name(first + each.arena), each) for each in classes]
    columns = CLASSES.columns if every_class else CLASSES.columns[1:]
    sizes = CLASSES.table([row if every_class else row[1:] for row in rows], columns, title="Size classes")
    sums: Counter[str] = Counter()
    for usage in found:
        sums["jemalloc_allocated_bytes"] += usage.allocated
        sums["jemalloc_cached_bytes"] += usage.cached
        sums["jemalloc_active_bytes"] += usage.active
        sums["jemalloc_dirty_bytes"] += usage.dirty
        sums["jemalloc_muzzy_bytes"] += usage.muzzy
        sums["jemalloc_retained_bytes"] += usage.retained
    sums["jemalloc_arenas"] += len(found)
    sums["jemalloc_metadata_bytes"] += one.base.size()
    return Statistics([arenas, sizes], sums=dict(sums))


def _arena_row(name: str, usage: Usage) -> tuple[Value, ...]:
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


def _class_row(arena: Optional[str], each: SizeClass) -> tuple[Value, ...]:
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
