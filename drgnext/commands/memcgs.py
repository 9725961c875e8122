"""The control groups of memory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema
from drgnext.kernel.stacks.threads import kernel_threads
from drgnext.kernel.system.memcgs import has_groups, memory_groups
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "memcgs",
    "a memory cgroup, those with most memory first",
    (
        Column("current", "size", width=7),
        Column("limit", "size", width=6, null="it has none"),
        Column("peak", "size", width=6),
        Column("swap", "size", width=6),
        Column("failed", "count", about="how often the limit was hit"),
        Column("killed", "count", about="processes that the OOM killer killed"),
        Column("processes", "count", title="PROCS"),
        Column("path"),
        Column("online", "flag", hidden=True, about="false for a removed group"),
        Column("address", "address", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the groups, those with most memory first."""
    threads = kernel_threads(kernel)
    reader = Reader(kernel)
    page = 1 << int(kernel.prog["PAGE_SHIFT"])
    groups = sorted(memory_groups(reader, threads), key=lambda one: -one.current)
    removed = [one for one in groups if not one.online]
    rows = [
        (
            *(one.current * page, None if one.limit is None else one.limit * page, one.peak * page, one.swap * page),
            *(
                one.failed,
                one.killed,
                one.processes,
                one.path if one.online else f"{one.path} (removed)",
                one.online,
                one.address,
            ),
        )
        for one in groups[: args.top]
    ]
    report = Report([COLUMNS.table(rows)], notes=[*dict.fromkeys(threads.notes), *reader.notes])
    if not has_groups(reader):
        report.notes.append("this kernel has no memory cgroups")
    report.totals.update(groups=len(groups), removed=len(removed), removed_bytes=sum(r.current for r in removed) * page)
    return report


COMMAND = Command(
    name="memcgs",
    summary="memory cgroups: use, limit, peak, swap, and the number of processes",
    description="""CURRENT is memory.current: it includes the groups below. LIMIT is memory.max, FAILED how often it was
hit (the line "max" of memory.events.local, or memory.failcnt), KILLED how many of its processes the OOM killer killed
(the line "oom_kill"). A removed group lives as long as pages are charged to it: thousands of them are a leak.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("groups", "count"), Column("removed", "count"), Column("removed_bytes", "bytes")),
    arguments=(Argument("--top", metavar="N", type=positive, help="only the first N"),),
    requires=(KERNEL,),
    examples=(("memcgs --top 20", "the groups with most memory"),),
)
