"""Show how much each slab cache holds."""

from __future__ import annotations

import argparse

from dmods.base.dataclass import replace
from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Value
from drgnext.commands._slabs import objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.objects import Usage

_COLUMNS = Schema(
    "caches",
    "a slab cache, the largest first; one row may stand for slabs whose cache is not known",
    (
        Column("cache", width=24),
        Column("object_size", "bytes", width=7, title="OBJSIZE", null="the cache is not known"),
        Column(
            "in_use",
            "count",
            width=9,
            title="IN USE",
            null="the cache is not known",
            about="at most, where `exact` is false",
        ),
        Column("free", "count", width=8, null="the cache is not known", about="at least, where `exact` is false"),
        Column("slabs", "count", width=7, null="the cache is not known"),
        Column("bytes", "bytes", width=10),
        Column("share", "percent", width=5, title="%SLAB"),
        Column("aliases", title="ALSO HOLDS", hidden=True, null="no other cache was merged into it"),
        Column("address", "address", hidden=True, null="the cache is not known"),
        Column("slot_size", "bytes", hidden=True, null="the cache is not known"),
        Column("pages", "count", hidden=True),
        Column("exact", "flag", hidden=True, about="false where the dump lacks a part of the lists of free objects"),
        Column("bound", title="", hidden=True, null="the row is exact"),
    ),
)
_BOUND = "in use at most, free at least"
_VERBOSE = tuple(
    Column("aliases", title="ALSO HOLDS") if column.name == "aliases" else column for column in _COLUMNS.columns
)
_RULE = "-" * 76
_CANNOT = 1  # the exit status: not all of the answer is known


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return a line for each cache, the largest first."""
    slabs = objects_of(kernel)
    page = 1 << slabs.pages.layout["page_bits"]
    found = sorted(slabs.usage(), key=lambda one: (-one.pages, one.cache.name))
    if args.cache is not None:
        found = [one for one in found if args.cache in one.cache.name]
    pages = slabs.counted.kinds["slab"]
    also: dict[str, list[str]] = {}
    for name, other in slabs.aliases.items() if args.verbose or args.json else ():
        if not name.startswith(":"):
            also.setdefault(other, []).append(name)
    rows = [_row(one, page, pages, also) for one in found[: args.top]]
    exact = not any(one.cut for one in found)
    if slabs.unknown_pages and args.cache is None:
        size = slabs.unknown_pages * page
        rows.append(
            (
                "(cache not known)",
                None,
                None,
                None,
                None,
                size,
                _share(size, pages * page),
                None,
                None,
                None,
                slabs.unknown_pages,
                False,
                None,
            )
        )
    footer = [
        _RULE,
        f"{'Total':<24} {'':7} {sum(one.in_use for one in found):9} {sum(one.free for one in found):8} "
        f"{sum(one.slabs for one in found):7} {sum(one.pages for one in found) * page + slabs.unknown_pages * page:10}"
        + ("" if exact else f"       {_BOUND}"),
    ]
    columns = _VERBOSE if args.verbose else _COLUMNS.columns
    if not exact:
        columns = (*columns[:-1], replace(columns[-1], hidden=False))
    report = Report([_COLUMNS.table(rows, columns, footer=footer)], status=0 if exact else _CANNOT)
    report.notes += slabs.notes
    report.totals.update(
        caches=len(found),
        in_use=sum(one.in_use for one in found),
        free=sum(one.free for one in found),
        slabs=sum(one.slabs for one in found),
        pages=sum(one.pages for one in found) + (slabs.unknown_pages if args.cache is None else 0),
        page_size=page,
        exact=exact,
    )
    return report


def _row(one: Usage, page: int, pages: int, also: dict[str, list[str]]) -> tuple[Value, ...]:
    """Return the cells of a cache."""
    cache = one.cache
    others = ", ".join(sorted(also.get(cache.name, ()))) or None
    size = one.pages * page
    cells = (cache.name, cache.object_size, one.in_use, one.free, one.slabs, size, _share(size, pages * page))
    return (*cells, others, cache.address, cache.size, one.pages, not one.cut, _BOUND if one.cut else None)


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


TOTALS = (
    Column("caches", "count"),
    Column("in_use", "count"),
    Column("free", "count"),
    Column("slabs", "count"),
    Column("pages", "count"),
    Column("page_size", "bytes"),
    Column("exact", "flag", about="false where the dump lacks a part of the lists of free objects; the status is 1"),
)


COMMAND = Command(
    name="kmastat",
    summary="how much each slab cache holds: objects in use and free, slabs, bytes",
    description=(
        "A line for each kmem_cache, the largest first. The bytes are those of its slabs, and add up to the line\n"
        "`slab` of `memstat -v`. Objects on the free lists of CPUs and in sheaves are free. All possible CPUs count:\n"
        "a panic takes CPUs offline, and their lists stay. The kernel merges caches of one size (-v shows their\n"
        "names): slab_nomerge on its command line keeps them apart. Where the dump lacks pages that such lists lead\n"
        "to, the line says that the counts are bounds, and the exit status is 1."
    ),
    run=run,
    tables=(_COLUMNS,),
    totals=TOTALS,
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="also the caches that were merged into each"),
        Argument("--top", metavar="N", type=positive, help="only the N largest"),
        Argument("cache", nargs="?", metavar="CACHE", help="only caches whose name has this in it"),
    ),
    requires=(KERNEL,),
    examples=(("kmastat --top 10", "the ten largest caches"), ("kmastat dentry", "the caches of dentries")),
)
