"""Say what slab objects keep alive alone."""

from __future__ import annotations

import argparse

from dmods._engine import KeptObject
from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
from dmods.errors import ASK_WHATIS, UsageError
from dmods.report import Column, Report, Schema, Value
from drgnext.commands._slabs import LARGE, address_asked, cache_name, objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.caches import SlabCacheInfo
from drgnext.kernel.slabs.objects import SlabObjects
from drgnext.kernel.slabs.retained import KernelRetained, kernel_retained

_TOP = 10

_CACHES = Schema(
    "caches",
    "a slab cache",
    (
        Column("cache", width=24),
        Column("object_size", "bytes", width=7, title="OBJSIZE", null="it is kmalloc-large"),
        Column("bytes", "bytes", width=12, title="KEPT BYTES", about="what its objects keep alive"),
        Column("leaked_bytes", "bytes", title="BY LEAKED", about="what its leaked objects keep alive"),
    ),
    when="without CACHE and ADDR",
)
_RETAINED = Schema(
    "retained",
    "the object",
    (
        Column("address", "address", title="keeps alive"),
        Column("cache", title="  an object of"),
        Column("size", "bytes", title="  its own bytes"),
        Column("count", "count", title="  objects, itself included"),
        Column("bytes", "bytes", title="  bytes of all"),
        Column("leaked", title="  leaked", about="yes or no"),
    ),
    when="with ADDR",
)
_SUMS = Schema(
    "caches",
    "a slab cache of the objects that it keeps alive",
    (
        Column("bytes", "bytes", width=12),
        Column("count", "count", title="OBJECTS"),
        Column("cache"),
    ),
    when="with ADDR",
)
_OBJECTS = Schema(
    "objects",
    "an object of the cache that keeps much alive",
    (
        Column("address", "address", width=16),
        Column("size", "bytes"),
        Column("count", "count", title="KEEPS", about="what it keeps alive, itself included"),
        Column("bytes", "bytes", title="KEPT BYTES", about="what it keeps alive, itself included"),
        Column("cache"),
    ),
    when="with CACHE",
)

_BELOW = Schema("below", "one of the largest objects directly below it", _OBJECTS.columns, when="with ADDR")
_ABOVE = Schema("above", "an object that keeps it alive, from the inside out", _OBJECTS.columns, when="with ADDR")
TOTALS = (
    Column("caches", "count", when="without CACHE and ADDR"),
    Column("objects", "count", when="with CACHE"),
    Column("count", "count", when="with ADDR", about="objects that it keeps alive"),
    Column("bytes", "bytes", when="with ADDR"),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return what each cache, the objects of a cache, or an object keeps alive."""
    slabs = objects_of(kernel)
    with Progress("searching for pointers") as bar:
        total = sum(one.pages for one in slabs.usage()) << slabs.pages.layout["page_bits"]
        found = kernel_retained(kernel, lambda done: bar.update(done, max(done, total)))
    report = Report(notes=[*slabs.notes, *found.notes])
    cache = slabs.named(args.what) if args.what is not None else None
    if args.what is None:
        _caches(found, args.top, report)
    elif cache is not None or args.what == LARGE:
        _largest(found, cache, args.top, report)
    else:
        _object(found, address_asked(kernel, args.what), args.top, report)
    return report


def _caches(found: KernelRetained, top: int, report: Report) -> None:
    caches = found.by_cache()
    rows: list[tuple[Value, ...]] = [
        (cache_name(row.cache), row.cache.object_size if row.cache else None, row.held, row.leaked)
        for row in caches[:top]
    ]
    report.tables.append(_CACHES.table(rows))
    report.totals["caches"] = len(caches)
    _cut(len(caches), top, "caches", report)


def _largest(found: KernelRetained, cache: SlabCacheInfo | None, top: int, report: Report) -> None:
    rows = found.tree.largest(cache.number if cache is not None else None, top)
    title = f"objects of {cache_name(cache)} that keep most alive"
    report.tables.append(_OBJECTS.table(_rows(found.slabs, rows), title=title))
    report.totals["objects"] = len(rows)


def _object(found: KernelRetained, address: int, top: int, report: Report) -> None:
    chain = found.above(address, top + 1)
    if not chain:
        raise UsageError(f"{address:#x} is in no slab object that is in use", ASK_WHATIS)
    first = chain[0]
    name = cache_name(found.slabs.cache(first.cache))
    row = (first.address, name, first.size, first.count, first.bytes, "yes" if first.leaked else "no")
    report.tables.append(_RETAINED.table([row], style="record"))
    sums = found.caches_of(address)
    rows: list[tuple[Value, ...]] = [
        (one.bytes, one.count, cache_name(found.slabs.cache(one.cache))) for one in sums[:top]
    ]
    report.tables.append(_SUMS.table(rows, title="of these caches"))
    _cut(len(sums), top, "caches", report)
    below = found.tree.below(address, top)
    if below:
        title = "the largest parts directly below it"
        report.tables.append(_BELOW.table(_rows(found.slabs, below), title=title))
    if len(chain) > 1:
        title = "kept alive by, from the inside out"
        report.tables.append(_ABOVE.table(_rows(found.slabs, chain[1 : top + 1]), title=title))
    report.totals.update(count=first.count, bytes=first.bytes)


def _rows(slabs: SlabObjects, found: list[KeptObject]) -> list[tuple[Value, ...]]:
    return [(one.address, one.size, one.count, one.bytes, cache_name(slabs.cache(one.cache))) for one in found]


def _cut(count: int, top: int, what: str, report: Report) -> None:
    if count > top:
        report.notes.append(f"{count - top} more {what} are not shown (--top)")


COMMAND = Command(
    name="retained",
    summary="what slab objects keep alive alone: without them this would be free",
    description=(
        "An object keeps another one alive if every path from a root to the other one leads through it. The roots\n"
        "are those of findleaks. retained counts these objects and the object itself, by the dominator tree of all\n"
        "slab objects. Without an argument, it shows what the objects of each cache keep alive, and how much of that\n"
        "leaked objects keep alive (BY LEAKED). A byte counts once for each cache, and may count for several caches.\n"
        "With a cache, it shows the objects of it that keep most alive. With an address, it shows what this object\n"
        "keeps alive, by cache, and the objects that keep this one alive. Many objects of a kernel are on lists that\n"
        "several structures share. Such an object keeps little more than itself alive."
    ),
    run=run,
    tables=(_CACHES, _OBJECTS, _RETAINED, _SUMS, _BELOW, _ABOVE),
    totals=TOTALS,
    arguments=(
        Argument("--top", type=positive, default=_TOP, metavar="N", help=f"N lines in each table ({_TOP})"),
        Argument("what", nargs="?", metavar="CACHE|ADDR", help="the objects of this cache, or the object there"),
    ),
    requires=(KERNEL,),
    examples=(
        ("retained", "the caches whose objects keep most alive"),
        ("retained task_struct", "the tasks that keep most alive"),
    ),
)
