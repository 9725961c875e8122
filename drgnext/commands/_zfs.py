"""The table of OpenZFS's cache, which memstat and zfs show."""

from __future__ import annotations

from dmods.report import Column, Schema, Table
from drgnext.kernel.system.openzfs import Cache

ARC = Schema(
    "arc",
    "a figure of OpenZFS's cache",
    (
        Column("what", width=30, title="ZFS cache (ARC)", rule=15),
        Column("mb", "count", width=8, title="MB", rule=8),
        Column("within", title="Part of", rule=7, about="what it is a part of, or empty"),
        Column("bytes", "bytes", hidden=True),
        Column("name", hidden=True, about="a name for scripts"),
    ),
    when="where OpenZFS has a cache whose layout is known",
)
#: The name of a figure, the text, and what it is a part of: the ARC's size, a line of memstat, or both.
_ROWS = (
    ("size", "size", ""),
    ("target", "target", ""),
    ("lowest", "lowest target", ""),
    ("highest", "highest target", ""),
    ("need_free", "to be freed", ""),
    ("data", "data", "size"),
    ("metadata", "metadata", "size"),
    ("headers", "headers", "size, Kernel"),
    ("dbufs", "dbufs", "size, Kernel"),
    ("dnodes", "dnodes", "size, Kernel"),
    ("bonus", "bonus buffers", "size, Kernel"),
    ("scatter", "blocks in pages", "ZFS File Data"),
    ("scatter_waste", "waste in these pages", "size, ZFS File Data"),
    ("linear", "small (linear) blocks", "Kernel"),
)


def arc_table(cache: Cache) -> Table:
    """Return the table of the cache."""
    rows = []
    for name, what, within in _ROWS:
        value = getattr(cache, name)
        if value is not None:
            rows.append((what, value >> 20, within, value, name))
    shrinks = ["the ARC does not grow: memory was short"] if cache.no_grow else []
    return ARC.table(rows, footer=shrinks)
