"""Where all of a machine's memory went. Every page counts in exactly one line."""

from __future__ import annotations

import argparse

from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._zfs import ARC, arc_table
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.counters import counters
from drgnext.kernel.pages.frame_ranges import count_pages, present_pages
from drgnext.kernel.pages.kinds import KINDS, buckets
from drgnext.kernel.pages.memmap import REMEMBERED, Counted, PageArray, page_array
from drgnext.kernel.system.openzfs import cache
from drgnext.kernel.system.reading import Reader

# The layout is exactly mdb's. JSON also has the bytes.
_SUMMARY = Schema(
    "summary",
    "a line of mdb's ::memstat",
    (
        Column("bucket", width=16, title="Page Summary", rule=12),
        Column("pages", "count", width=16, title="Pages", rule=16),
        Column("mb", "count", width=17, title="MB", rule=16, about="1 MB is 1,048,576 bytes"),
        Column("percent", "percent", width=5, title="%Tot", rule=4),
        Column("bytes", "bytes", hidden=True),
    ),
)
_KINDS = Schema(
    "kinds",
    "a kind of page",
    (
        Column("kind", width=27, title="Kind", rule=4),
        Column("bucket", width=16, title="Part of", rule=7, about="the line of the table summary"),
        Column("pages", "count", width=12, title="Pages", rule=12),
        Column("mb", "count", width=8, title="MB", rule=8),
        Column("percent", "percent", width=5, title="%Tot", rule=4),
        Column("bytes", "bytes", hidden=True),
        Column("name", hidden=True, about="a name for scripts"),
    ),
    when="with -v",
)
_COUNTERS = Schema(
    "counters",
    "a counter of the kernel's own",
    (
        Column("what", width=30, title="The kernel's own counters", rule=25),
        Column("pages", "count", width=12, title="Pages", rule=12),
        Column("mb", "count", width=8, title="MB", rule=8),
        Column("within", title="Among these kinds", rule=17, about="the kinds that have its pages"),
        Column("bytes", "bytes", hidden=True),
    ),
    when="with -v, where there are some",
)
_IDENTITY = Schema(
    "identity",
    "the work of the cache of mappings",
    (
        Column("lookups", "count", title="file pages looked up"),
        Column("hits", "count", title="answered by the cache"),
        Column("misses", "count", title="read from the dump"),
        Column("remembered", "count", title="mappings the cache holds"),
    ),
    when="with -v",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the pages of each bucket, with -v also of each kind."""
    array = page_array(kernel)
    counted = _count(array, args.cache)
    size = 1 << array.layout["page_bits"]
    total = counted.total

    def amounts(pages: int) -> tuple[Value, ...]:
        """Return the last four columns of both tables."""
        return pages, pages * size >> 20, 100 * pages / total if total else 0.0, pages * size

    rows = [(bucket, *amounts(pages)) for bucket, pages in buckets(counted.kinds).items()]
    footer = ["", f"{'Total':<16} {total:>16} {total * size >> 20:>17}"]
    report = Report([_SUMMARY.table(rows, footer=footer)])
    if args.verbose:
        kinds = [
            (kind.title, kind.bucket, *amounts(counted.kinds[name]), name)
            for name, kind in KINDS.items()
            if counted.kinds[name]
        ]
        own = [
            (one.what, one.pages, one.pages * size >> 20, one.within, one.pages * size)
            for one in counters(kernel.prog, counted.kinds)
        ]
        report.tables.append(_KINDS.table(kinds))
        if own:
            report.tables.append(_COUNTERS.table(own))
        reader = Reader(kernel)
        arc = cache(reader)
        if arc is not None:
            report.tables.append(arc_table(arc))
        report.notes += reader.notes
        if arc is None and counted.kinds["zfs"]:
            report.notes.append("the ZFS cache is not shown apart: load the debug information of the module zfs")
        report.tables.append(_identity(counted, args.cache))
    present = present_pages(kernel.prog)
    report.totals.update(pages=total, bytes=total * size, page_size=size, present_pages=present)
    report.notes += [*array.notes, *counted.notes]
    if present is not None and present != total:
        report.notes.append(f"the kernel reports {present} pages, but {total} pages are RAM with a struct page")
    return report


def _count(array: PageArray, remember: int) -> Counted:
    """Return the count of all pages, with a progress bar."""
    total = count_pages(list(array.ranges)) * array.layout["size"]
    with Progress("reading the page array") as bar:
        return array.count(remember, lambda done: bar.update(done, total))


def _identity(counted: Counted, remember: int) -> Table:
    """Return the table of what the cache of mappings did."""
    hits, misses = counted.identity["hits"], counted.identity["misses"]
    return _IDENTITY.table([(hits + misses, hits, misses, remember)], style="record")


TOTALS = (
    Column("pages", "count"),
    Column("bytes", "bytes"),
    Column("page_size", "bytes"),
    Column("present_pages", "count", null="the kernel does not tell it", about="as the kernel counts them"),
)


COMMAND = Command(
    name="memstat",
    summary="where all memory went: every page in exactly one line",
    description="""The lines are those of mdb's ::memstat:
  Kernel            slab, page tables, stacks, vmalloc, memory reserved at boot, rings of perf, io_uring, BPF and
                    packet sockets, ftrace, data in pipes and sockets, network page pools, per-CPU memory, requests of
                    block devices, and the rest
  ZFS File Data     OpenZFS's cache of files
  Anon              anonymous memory, KSM, shared memory and tmpfs, hugetlb pages in use. An executable on tmpfs or
                    in a memfd counts here: its pages can only be written to swap
  Exec and libs     files that are mapped executable somewhere
  Page cache        other files and block devices: mapped, dirty, under writeback or locked
  Free (cachelist)  clean file pages that nothing maps: valid content, free at once
  Free (freelist)   free
-v shows the kinds of pages that these lines are made of, and counters of the kernel. A counter has a number of pages,
and does not say which pages: the kinds above include them. With OpenZFS, -v also shows its cache. Offline memory
blocks are not counted.
The line "Unknown" appears only if the dump lacks struct pages, or they are damaged.""",
    run=run,
    tables=(_SUMMARY, _KINDS, _COUNTERS, ARC, _IDENTITY),
    totals=TOTALS,
    arguments=(
        Argument(
            "-v", "--verbose", action="store_true", help="also Linux's own kinds of pages, and statistics of the cache"
        ),
        Argument(
            "--cache",
            metavar="N",
            type=positive,
            default=REMEMBERED,
            help="how many mappings the cache holds (default %(default)s)",
        ),
    ),
    requires=(KERNEL,),
    examples=(
        ("memstat", "the seven lines"),
        ("memstat -v", "slab, page tables, stacks, hugetlb, shmem, ... apart"),
        ("memstat --json", "for a script: pages and bytes of each"),
    ),
)
