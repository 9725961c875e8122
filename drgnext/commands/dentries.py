"""The caches of names and inodes, and the files with most cached pages."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.base.progress import Progress
from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Value
from drgnext.kernel.system.dentries import Dentries, FileSystem
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

SYSTEMS = Schema(
    "file_systems",
    "a file system, those with most names first",
    (
        Column("type", width=10),
        Column("device", width=10),
        Column("dentries", "count", width=9, null="the kernel's cache of names cannot be read"),
        Column("negative", "count", width=9, null="the kernel's cache of names cannot be read"),
        Column("percent", "percent", title="NEG%", width=5, null="the kernel's cache of names cannot be read"),
        Column("unused", "count", width=9, null="the kernel's cache of names cannot be read"),
        Column("inodes", "count", width=9),
        Column("cached", "size", width=6, about="the pages of its files"),
        Column("superblock", "address", hidden=True),
    ),
)
FILES = Schema(
    "files",
    "a file with many cached pages",
    (
        Column("cached", "size", width=6),
        Column("type", width=10),
        Column("device", width=10),
        Column("path", null="no name of it is cached"),
        Column("number", "count", hidden=True, about="of the inode"),
        Column("inode", "address", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the file systems with most names first, and the files with most cached pages."""
    reader = Reader(kernel)
    dentries = Dentries(reader)
    with Progress("counting names") as bar:
        dentries.read(args.top, lambda done: bar.update(done, 0))
    page = 1 << int(kernel.prog["PAGE_SHIFT"])
    systems = sorted(dentries.file_systems.values(), key=lambda one: (-one.dentries, -one.pages))
    rows = [
        (
            *(one.kind, one.name, *(_names(one) if dentries.known else (None,) * 4)),
            *(one.inodes, one.pages * page, one.address),
        )
        for one in systems
        if args.all or one.dentries or one.pages
    ]
    files = []
    for one in dentries.files:
        system = dentries.file_systems[one.superblock]
        path = dentries.path(one.inode) or None
        files.append((one.pages * page, system.kind, system.name, path, one.number, one.inode))
    report = Report(
        [
            SYSTEMS.table(rows),
            FILES.table(files, title=f"the {len(files)} files with most cached pages:"),
        ]
    )
    report.totals.update(
        dentries=sum(one.dentries for one in systems) + dentries.unknown,
        negative=sum(one.negative for one in systems),
        counted=dentries.counted(),
    )
    report.notes += reader.notes
    if dentries.unknown:
        report.notes.append(f"{dentries.unknown} dentries belong to no file system that is listed")
    return report


def _names(one: FileSystem) -> tuple[Value, ...]:
    """Return the cells from "dentries" to "unused"."""
    share = 100 * one.negative / one.dentries if one.dentries else 0.0
    return one.dentries, one.negative, share, one.unused


TOTALS = (
    Column("dentries", "count"),
    Column("negative", "count"),
    Column("counted", "named_counts", about="the kernel's own counters, which include roots and removed names"),
)


COMMAND = Command(
    name="dentries",
    summary="cached names by file system, the share of negative ones, and the files with most cached pages",
    description="""A negative dentry is the name of a file that does not exist. Nobody uses the UNUSED ones: the kernel
frees them when memory is short. CACHED is the page cache of the files. Paths are those within a file system. The
totals of --json have the kernel's own counters too, which include roots and removed names.""",
    run=run,
    tables=(SYSTEMS, FILES),
    totals=TOTALS,
    arguments=(
        Argument("--top", metavar="N", type=positive, default=10, help="how many files (default %(default)s)"),
        Argument("-a", "--all", action="store_true", help="also file systems that cache nothing"),
    ),
    requires=(KERNEL,),
    examples=(("dentries --top 30", "what fills the page cache, and who asks for files that are not there"),),
)
