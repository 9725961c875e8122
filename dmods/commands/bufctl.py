"""Show allocation records, one a line."""

from __future__ import annotations

import argparse

from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.commands._records import BRIEF, CALLER_ARGUMENTS, EVENT, HEAD, audit, brief_row, callers_asked, entry_named
from dmods.records.model import Entry, Record
from dmods.records.sources import allocation_records
from dmods.report import Report
from dmods.target import Target

ADDRESS = Argument("address", metavar="ADDR", help="a bufctl, an entry of the log, or (any address in) a buffer")


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return a line for each record."""
    entry = entry_named(target, args.address)
    callers = callers_asked(target, args, lines=args.verbose)
    entries = _history(entry) if args.history else [entry]
    if args.verbose:
        tables = list(audit(target, callers, *entries))
    else:
        columns = [
            replace(column, hidden=False) if args.history and column is EVENT else column for column in BRIEF.columns
        ]
        tables = [BRIEF.table([brief_row(callers, each) for each in entries], columns)]
    return Report(tables, notes=allocation_records(target).notes)


def _history(entry: Entry) -> list[Entry]:
    """Return the entry and what happened at its address before, newest first.

    The log has the allocation of a live block, too.
    """
    earlier = list(entry.history())
    if isinstance(entry, Record) and earlier and not earlier[0].freed and earlier[0].time == entry.time:
        del earlier[0]
    return [entry, *earlier]


COMMAND = Command(
    name="bufctl",
    summary="an allocation record in a line: buffer, timestamp, thread, caller",
    description=(
        "Of a live buffer: who allocated it. Of a freed one: its last entry in the transaction log. TIMESTAMP is\n"
        "nanoseconds of CLOCK_MONOTONIC, in hexadecimal as in mdb; --json has it in decimal. With -H, EVENT\n"
        'says what happened: an allocation or a free. "live" is the block that is allocated now.'
    ),
    run=run,
    tables=(BRIEF, replace(HEAD, when="with -v")),
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="with the stack, as `bufctl_audit`"),
        Argument(
            "-H", "--history", action="store_true", help="what happened at this address before, too (needs a log)"
        ),
        *CALLER_ARGUMENTS,
        ADDRESS,
    ),
    requires=("userland", "audit"),
    examples=(
        ("bufctl 0x7f3a1c0025c0", "the record that findleaks shows under BUFCTL"),
        ("bufctl -H 0x55d0c8a012a0", "who had the buffer at this address, and who before"),
    ),
)
