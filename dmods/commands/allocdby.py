"""The buffers that a thread allocated."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress
from typing import Optional

from dmods import records
from dmods.callers import Callers
from dmods.command import Argument, Command, positive
from dmods.errors import UsageError
from dmods.records import Entry, Records
from dmods.recordviews import CALLER, REQUESTED, address_of, newest_first
from dmods.report import Column, Report, Table
from dmods.target import Target

COLUMNS = (
    Column("bufctl", "address", width=16),
    Column("timestamp", "time", width=12),
    CALLER,
    REQUESTED,
    Column("bufaddr", "address", hidden=True),
    Column("thread", "count", hidden=True),
)
THREAD = Argument("thread", metavar="THREAD", help="tid, pthread_t or name; it may have exited")
TOP = Argument("--top", type=positive, metavar="N", help="only the N newest")


def run(target: Target, args: argparse.Namespace) -> Report:
    found = records.require(target)
    entries = found.all(*thread_meant(target, found, args.thread))
    return report(target, found, "allocdby", newest_first(entries), args.top)


def report(target: Target, found: Records, name: str, entries: Iterable[Entry], top: Optional[int]) -> Report:
    """The table that allocdby and freedby share."""
    entries = list(entries)
    callers = Callers(target)
    rows = (
        (
            address_of(each),
            each.time,
            callers.caller(each.stack).text,
            each.requested,
            each.address,
            each.thread.tid,
        )
        for each in entries[:top]
    )
    totals = {"buffers": len(entries), "bytes": sum(entry.requested for entry in entries)}
    return Report([Table(name, COLUMNS, rows)], notes=found.notes, totals={**totals})


def thread_meant(target: Target, found: Records, text: str) -> tuple[str, Optional[int]]:
    """(the text, the number that it is) of a thread that some recorder knows. Raises UsageError."""
    try:
        number: Optional[int] = int(text, 0)
    except ValueError:
        number = None
    if any(recording.threads_called(text, number) for recording in found.recordings):
        return text, number
    with suppress(UsageError):  # in gdb: $fs_base, pthread_self()
        number = target.evaluate(text)
        if any(recording.threads_called(text, number) for recording in found.recordings):
            return text, number
    known = sorted({t.tid for recording in found.recordings for t in recording.threads if t.tid is not None})
    some = ", ".join(map(str, known[:8])) + (", ..." if len(known) > 8 else "")
    raise UsageError(f"no thread {text} ever allocated or freed anything", f"those that did: {some or 'none'}")


COMMAND = Command(
    name="allocdby",
    summary="the buffers that a thread allocated and that are still there, newest first",
    run=run,
    arguments=(TOP, THREAD),
    requires=("userland", "audit"),
    examples=(("allocdby 1607", "what thread 1607 allocated"), ("allocdby worker", "what threads of this name did")),
)
