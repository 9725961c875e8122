"""Where all of a machine's memory went: every page in exactly one line."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Argument, Command
from dmods.progress import Progress
from dmods.report import Column, Report, Table, Value
from drgnext.kernel import memmap, ranges
from drgnext.kernel.kinds import KINDS, buckets
from drgnext.kernel.memmap import Counted, PageArray
from drgnext.kernel.target import Kernel

# mdb's own layout, to the letter. JSON has the bytes as well.
_SUMMARY = (
    Column("bucket", width=16, title="Page Summary", rule=12),
    Column("pages", "count", width=16, title="Pages", rule=16),
    Column("mb", "count", width=17, title="MB", rule=16),
    Column("percent", "percent", width=5, title="%Tot", rule=4),
    Column("bytes", "bytes", hidden=True),
)
_KINDS = (
    Column("kind", width=27, title="Kind", rule=4),
    Column("bucket", width=16, title="Part of", rule=7),
    Column("pages", "count", width=12, title="Pages", rule=12),
    Column("mb", "count", width=8, title="MB", rule=8),
    Column("percent", "percent", width=5, title="%Tot", rule=4),
    Column("bytes", "bytes", hidden=True),
    Column("name", hidden=True),
)
_IDENTITY = (
    Column("lookups", "count", title="file pages looked up"),
    Column("hits", "count", title="answered by the cache"),
    Column("misses", "count", title="read from the dump"),
    Column("remembered", "count", title="mappings the cache holds"),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    array = memmap.of(kernel)
    counted = _count(array, args.cache)
    size = 1 << array.layout["page_bits"]
    total = counted.total

    def amounts(pages: int) -> tuple[Value, ...]:
        """The last four columns of both tables."""
        return pages, pages * size >> 20, 100 * pages / total if total else 0.0, pages * size

    rows = [(bucket, *amounts(pages)) for bucket, pages in buckets(counted.kinds).items()]
    footer = ["", f"{'Total':<16} {total:>16} {total * size >> 20:>17}"]
    report = Report([Table("summary", _SUMMARY, rows, footer=footer)])
    if args.verbose:
        kinds = [
            (kind.title, kind.bucket, *amounts(counted.kinds[name]), name)
            for name, kind in KINDS.items()
            if counted.kinds[name]
        ]
        report.tables += [Table("kinds", _KINDS, kinds), _identity(counted, args.cache)]
    present = ranges.present(kernel.prog)
    report.totals.update(pages=total, bytes=total * size, page_size=size, present_pages=present)
    report.notes += [*array.notes, *counted.notes]
    if present is not None and present != total:
        report.notes.append(f"the kernel says that it has {present} pages; {total} have a struct page and are RAM")
    return report


def _count(array: PageArray, remember: int) -> Counted:
    total = ranges.pages(list(array.ranges)) * array.layout["size"]
    with Progress("reading the page array") as bar:
        return array.count(remember, lambda done: bar.update(done, total))


def _identity(counted: Counted, remember: int) -> Table:
    hits, misses = counted.identity["hits"], counted.identity["misses"]
    return Table("identity", _IDENTITY, [(hits + misses, hits, misses, remember)], style="record")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


COMMAND = Command(
    name="memstat",
    summary="where all memory went: every page in exactly one line",
    description="""The lines are those of mdb's ::memstat:
  Kernel            slab, page tables, stacks, vmalloc, what was reserved at boot, and the rest
  ZFS File Data     OpenZFS's cache of files
  Anon              anonymous memory, KSM, shared memory and tmpfs, hugetlb pages in use
  Exec and libs     files that are mapped executable somewhere
  Page cache        other files and block devices: mapped, dirty, under writeback or locked
  Free (cachelist)  clean file pages that nothing maps: free at once, with their content still good
  Free (freelist)   free
A line "Unknown" is there only where the dump lacks struct pages, or they are garbled.""",
    run=run,
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="also Linux's own kinds, and what the cache did"),
        Argument(
            "--cache",
            metavar="N",
            type=_positive,
            default=memmap.REMEMBERED,
            help="how many mappings are remembered, once looked up (default %(default)s)",
        ),
    ),
    requires=(KERNEL,),
    examples=(
        ("memstat", "the seven lines"),
        ("memstat -v", "slab, page tables, stacks, hugetlb, shmem, ... apart"),
        ("memstat --json", "for a script: pages and bytes of each"),
    ),
)
