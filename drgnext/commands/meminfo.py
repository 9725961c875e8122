"""Compute what /proc/meminfo would have said."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Command
from dmods.report import Column, Report, Schema
from drgnext.kernel.system.meminfo import Meminfo
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "meminfo",
    "a line of /proc/meminfo",
    (
        Column("name", width=18),
        Column("value", "count", width=12, about="in `unit`"),
        Column("unit", about="kB, or empty for a number of pages"),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the lines of /proc/meminfo."""
    reader = Reader(kernel)
    lines = Meminfo(reader).lines()
    rows = [(line.name, line.value, line.unit) for line in lines]
    report = Report([COLUMNS.table(rows)], notes=reader.notes)
    report.totals.update((line.name, line.value << 10 if line.unit else line.value) for line in lines)
    return report


COMMAND = Command(
    name="meminfo",
    summary="what /proc/meminfo would have said at the moment of the dump",
    description="""The counters are the kernel's own, read as /proc/meminfo reads them. The totals of --json are in
bytes. A counter that this kernel does not have is left out. `memstat` counts the pages themselves instead.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("*", "count", about="each line of the file by its name: bytes where the unit is kB"),),
    requires=(KERNEL,),
    examples=(("meminfo", "the lines of the file"),),
)
