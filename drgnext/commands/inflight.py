"""Requests that block devices have not answered."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.requests import disks

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

DISKS = Schema(
    "disks",
    "a disk",
    (
        Column("disk", width=10),
        Column("queues", "count"),
        Column("scheduler", width=11),
        Column("in_flight", "count", title="IN FLIGHT"),
        Column("oldest", null="no request is in flight", about="in words"),
        Column(
            "counted",
            "count",
            hidden=True,
            null="this kernel does not count them",
            about="requests in flight, as the kernel counts them",
        ),
        Column("gendisk", "address", hidden=True),
    ),
)
REQUESTS = Schema(
    "requests",
    "a request that the device has not answered, the oldest first",
    (
        Column("disk", width=8),
        Column("queue", "count"),
        Column("tag", "count", width=4),
        Column("operation", title="OP", width=7),
        Column("sector", "count", width=11, about="in units of 512 bytes"),
        Column("size", "size", width=5),
        Column("age", width=6, null="it is not known", about="in words"),
        Column("state"),
        Column("request", "address", width=16),
        Column("age_ns", "ns", hidden=True, null="it is not known"),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the disks, and their requests, the oldest first."""
    reader = Reader(kernel)
    found = disks(reader)
    rows = [
        (
            *(one.name, one.queues, one.scheduler, len(one.requests)),
            *(age_text(max((each.age or 0 for each in one.requests), default=None)), one.counted, one.address),
        )
        for one in found
        if args.all or one.requests or one.queues
    ]
    requests = [
        (
            *(one.name, each.queue, each.tag, each.operation, each.sector, each.size, age_text(each.age)),
            *(each.state, each.address, each.age),
        )
        for one in found
        for each in one.requests
    ]
    requests.sort(key=lambda row: -int(row[-1] or 0))
    report = Report(
        [
            DISKS.table(rows),
            REQUESTS.table(requests, footer=[] if requests else ["no request is in flight"]),
        ]
    )
    report.totals.update(disks=len(found), in_flight=len(requests))
    report.notes += reader.notes
    return report


COMMAND = Command(
    name="inflight",
    summary="requests that block devices have not answered, by disk and queue, with their age",
    description="""AGE is the time since the request was made. A request of seconds is stuck in the device or below
it: look at the other side (the host, the array, the network). Sectors are of 512 bytes.""",
    run=run,
    tables=(DISKS, REQUESTS),
    totals=(Column("disks", "count"), Column("in_flight", "count", about="requests")),
    arguments=(Argument("-a", "--all", action="store_true", help="also disks that have no hardware queue"),),
    requires=(KERNEL,),
    examples=(("inflight", "is the disk stuck?"),),
)
