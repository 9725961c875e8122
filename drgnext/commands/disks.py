"""Disks and partitions: where they begin, the blocks below, and how many requests they take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command
from dmods.errors import UserError
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.layouts import SECTOR, layouts
from drgnext.kernel.system.queues import queues
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

LAYOUTS = Schema(
    "disks",
    "a disk or a partition",
    (
        Column("name", width=10),
        Column("kind", width=9),
        Column("on", width=12, about="the devices below, or the file of a loop device"),
        Column("sector", "count", width=11, about="where it begins, in units of 512 bytes"),
        Column("size", "size", width=6),
        Column("block", "bytes", width=6, about="what the disk below reads or writes at once"),
        Column(
            "off",
            "count",
            width=5,
            about="bytes from the beginning to the next such block; -1 where the devices below do not agree",
        ),
        Column("address", "address", hidden=True),
    ),
)
QUEUES = Schema(
    "queues",
    "the queue of a disk",
    (
        Column("name", width=10),
        Column("queues", "count"),
        Column("depth", "count", about="requests that the device takes"),
        Column("requests", "count", title="NR_REQUESTS"),
        Column("scheduler", width=11),
        Column("in_flight", "count", title="IN FLIGHT", about="requests"),
        Column("queued", "count", about="requests"),
        Column("raw", "count", about="requests"),
        Column("buffered", "count", about="requests"),
        Column("waiting", "count", about="tasks that wait for a place"),
    ),
    when="where there is one",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return where each disk and partition begins, and the queue of each disk."""
    reader = Reader(kernel)
    rows = [
        (one.name, one.kind, ", ".join(one.below), one.start // SECTOR, one.size, one.grain, one.off, one.address)
        for one in layouts(reader)
        if args.name in (None, one.name)
    ]
    lines = [
        (
            *(one.disk.name, one.disk.queues, one.depth, one.limit, one.disk.scheduler, len(one.disk.requests)),
            *(len(one.queued), one.pages["raw"], one.pages["buffered"], len(one.waiting)),
        )
        for one in queues(reader)
        if args.name in (None, one.disk.name)
    ]
    if args.name is not None and not rows and not lines:
        raise UserError(f"no disk or partition is called {args.name!r}", "disks lists all")
    report = Report([LAYOUTS.table(rows)], notes=[*reader.notes])
    if lines:
        report.tables.append(QUEUES.table(lines))
    report.totals.update(disks=len(rows), misaligned=sum(1 for row in rows if row[6]))
    return report


TOTALS = (Column("disks", "count"), Column("misaligned", "count", about="`off` is not 0"))


COMMAND = Command(
    name="disks",
    summary="disks and partitions: where they begin, the blocks below, and how many requests they take",
    description="""BLOCK is what the disk below reads or writes at once. OFF is the distance from the beginning to the
next such block: it should be 0, else a write of one block touches two (-1: the devices below do not agree). SECTOR
counts 512 bytes. ON is a device, or the file of a loop device. DEPTH is how many requests the device takes, QUEUED
how many the scheduler holds back, WAITING how many tasks wait for a place. RAW requests have memory of a process
(O_DIRECT), BUFFERED ones have pages of files.""",
    run=run,
    tables=(LAYOUTS, QUEUES),
    totals=TOTALS,
    arguments=(Argument("name", metavar="NAME", nargs="?", help="only this disk or partition"),),
    requires=(KERNEL,),
    examples=(("disks", "are the partitions aligned?"),),
)
