"""The kernel's log."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Table
from drgnext.kernel.crash.whole_log import read_log

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = (Column("line"),)
RECORDS = (Column("time"), Column("text"))


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the lines of the log, oldest first."""
    records, notes = read_log(kernel.prog)
    if args.grep is not None:
        records = [record for record in records if args.grep.lower() in record.text.lower()]
    shown = records[-args.tail :] if args.tail else records
    rows = [(f"[{_stamp(record.time)}] {record.text}",) for record in shown]
    tables = [
        Table("log", COLUMNS, rows, style="plain", only="text"),
        Table("log", RECORDS, [(record.time, record.text) for record in shown], only="json"),
    ]
    return Report(tables, notes=notes, totals={"lines": len(records)})


def _stamp(seconds: float) -> str:
    """Return a time as the kernel prints it: it cuts off what is less than a microsecond."""
    microseconds = round(seconds * 1e9) // 1000
    return f"{microseconds // 1_000_000:5}.{microseconds % 1_000_000:06}"


COMMAND = Command(
    name="dmesg",
    summary="the kernel's log, with the time since boot of each line",
    description="A record of several lines is several lines here, with the same time.",
    run=run,
    arguments=(
        Argument("-n", "--tail", metavar="N", type=positive, help="only the last N lines"),
        Argument("-g", "--grep", metavar="TEXT", help="only lines with TEXT, in either case"),
    ),
    requires=(KERNEL,),
    examples=(
        ("dmesg -n 60", "the end, with the panic"),
        ("dmesg -g oom", "lines of the OOM killer"),
    ),
)
