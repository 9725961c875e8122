"""The kernel's log."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Table
from drgnext.kernel.crash.records import Record
from drgnext.kernel.crash.whole_log import read_log

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = (Column("line"),)
RECORDS = Schema(
    "log",
    "a line of the log",
    (
        Column("time", "seconds", about="since boot"),
        Column("text"),
        Column("who", null="this kernel does not note it", about="T and the pid, or C and the CPU"),
        Column("task", null="this kernel does not note it"),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the lines of the log, oldest first."""
    records, notes = read_log(kernel.prog)
    if args.grep is not None:
        records = [record for record in records if args.grep.lower() in record.text.lower()]
    shown = records[-args.tail :] if args.tail else records
    width = max((len(record.who) for record in shown), default=0) if args.who else 0
    if args.who and shown and not width:
        notes = [*notes, "this kernel's log does not say who printed a line (CONFIG_PRINTK_CALLER)"]
    rows = [(f"[{_stamp(record.time)}] {_who(record, width)}{record.text}",) for record in shown]
    tables = [
        Table("log", COLUMNS, rows, style="plain", only="text"),
        RECORDS.table([(one.time, one.text, one.who or None, one.task or None) for one in shown], only="json"),
    ]
    return Report(tables, notes=notes, totals={"lines": len(records)})


def _who(record: Record, width: int) -> str:
    """Return who printed a line in brackets of that width, "" for a width of 0."""
    return f"[{record.who:<{width}}] " if width else ""


def _stamp(seconds: float) -> str:
    """Return a time as the kernel prints it: it cuts off what is less than a microsecond."""
    microseconds = round(seconds * 1e9) // 1000
    return f"{microseconds // 1_000_000:5}.{microseconds % 1_000_000:06}"


COMMAND = Command(
    name="dmesg",
    summary="the kernel's log, with the time since boot of each line",
    description="""A record of several lines is several lines here, with the same time. -w shows who printed it. Kernels
from 7.0 on can also note the name of the task.""",
    run=run,
    tables=(RECORDS,),
    totals=(Column("lines", "count", about="also those that -n leaves out"),),
    arguments=(
        Argument("-n", "--tail", metavar="N", type=positive, help="only the last N lines"),
        Argument("-w", "--who", action="store_true", help="also the task (T1 init) or CPU (C0) that printed each line"),
        Argument("-g", "--grep", metavar="TEXT", help="only lines with TEXT, in either case"),
    ),
    requires=(KERNEL,),
    examples=(
        ("dmesg -n 60", "the end, with the panic"),
        ("dmesg -g oom", "lines of the OOM killer"),
        ("dmesg -w -n 20", "who printed the last lines"),
    ),
)
