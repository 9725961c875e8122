"""One allocation record in a line."""

from __future__ import annotations

import argparse

from dmods import records
from dmods.callers import Callers
from dmods.command import Argument, Command
from dmods.recordviews import BRIEF, audit, brief_row
from dmods.report import Report, Table
from dmods.target import Target

ADDRESS = Argument("address", metavar="ADDR", help="a bufctl, an entry of the log, or (any address in) a buffer")


def run(target: Target, args: argparse.Namespace) -> Report:
    entry = records.named(target, args.address)
    callers = Callers(target)
    entries = [entry, *entry.history()] if args.history else [entry]
    if args.verbose:
        tables: list[Table] = []
        for number, each in enumerate(entries, 1):
            tables.extend(audit(target, callers, each, f" {number}" if len(entries) > 1 else ""))
    else:
        tables = [Table("bufctl", BRIEF, [brief_row(callers, each) for each in entries])]
    return Report(tables, notes=records.of(target).notes)


COMMAND = Command(
    name="bufctl",
    summary="an allocation record in a line: buffer, timestamp, thread, caller",
    description=(
        "Of a live buffer: who allocated it. Of a freed one: its last entry in the transaction log. TIMESTAMP is\n"
        "nanoseconds of CLOCK_MONOTONIC, in hexadecimal as in mdb; --json has it in decimal."
    ),
    run=run,
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="with the stack, as `bufctl_audit`"),
        Argument(
            "-H", "--history", action="store_true", help="what happened at this address before, too (needs a log)"
        ),
        ADDRESS,
    ),
    requires=("userland", "audit"),
    examples=(
        ("bufctl 0x7f3a1c0025c0", "the record that findleaks shows under BUFCTL"),
        ("bufctl -H 0x55d0c8a012a0", "who had the buffer at this address, and who before"),
    ),
)
