"""The areas that a kernel swaps to, and who uses them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.processes import Processes
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.swap import swap_areas

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

AREAS = Schema(
    "areas",
    "a swap area",
    (
        Column("path", width=24),
        Column("type", width=9),
        Column("size", "size", width=6),
        Column("used", "size", width=6),
        Column("percent", "percent", title="USED%", width=5),
        Column("priority", "count"),
        Column("address", "address", hidden=True),
    ),
)
USERS = Schema(
    "users",
    "a process with much in swap",
    (
        Column("pid", "count", width=7),
        Column("name", width=15),
        Column("swap", "size", width=6),
        Column("rss", "size", width=6),
    ),
    when="where there are some",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the swap areas, and the processes with most pages there."""
    reader = Reader(kernel)
    processes = Processes(reader)
    page = processes.page
    areas = swap_areas(reader)
    rows = [
        (a.path, a.kind, a.size * page, a.used * page, 100 * a.used / a.size if a.size else 0.0, a.priority, a.address)
        for a in areas
    ]
    users = sorted((one for one in processes.all() if one.swap), key=lambda one: -one.swap)
    report = Report([AREAS.table(rows, footer=[] if rows else ["no swap area is in use"])])
    if users:
        cells = [(one.task.pid, one.task.comm, one.swap, one.rss) for one in users[: args.top]]
        report.tables.append(USERS.table(cells, title="processes with most in swap:"))
    report.totals.update(
        size=sum(area.size for area in areas) * page,
        used=sum(area.used for area in areas) * page,
        of_processes=sum(one.swap for one in users),
    )
    report.notes += [*dict.fromkeys(processes.threads.notes), *reader.notes]
    return report


TOTALS = (
    Column("size", "bytes"),
    Column("used", "bytes"),
    Column("of_processes", "bytes", about="a page that several share counts for each"),
)


COMMAND = Command(
    name="swapinfo",
    summary="swap areas with their use, and the processes with most in swap",
    description="""The sum of the processes may be smaller than the swap in use: shared memory and tmpfs are swapped,
too. It may be larger, because forked processes share pages.""",
    run=run,
    tables=(AREAS, USERS),
    totals=TOTALS,
    arguments=(
        Argument("--top", metavar="N", type=positive, default=10, help="how many processes (default %(default)s)"),
    ),
    requires=(KERNEL,),
    examples=(("swapinfo", "the areas, and ten processes"),),
)
