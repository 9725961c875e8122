"""The buffers that a thread allocated."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Optional

from dmods import records
from dmods.callers import Callers
from dmods.command import Argument, Command, positive
from dmods.errors import UsageError
from dmods.records import EventRow, Recording, Records, Stack
from dmods.recordviews import CALLER, REQUESTED
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
_TIME = 1  # among the columns


def run(target: Target, args: argparse.Namespace) -> Report:
    return report(target, records.require(target), "allocdby", args)


def report(target: Target, found: Records, name: str, args: argparse.Namespace, freed: bool = False) -> Report:
    """What allocdby and freedby have in common."""
    newest = found.newest(freed, *thread_meant(target, found, args.thread), args.top)
    callers = Callers(target)
    rows = merge(*(_rows(callers, *part) for part in newest.events), key=itemgetter(_TIME), reverse=True)
    totals = {"buffers": newest.count, "bytes": newest.bytes}
    return Report([Table(name, COLUMNS, islice(rows, args.top))], notes=found.notes, totals={**totals})


def _rows(
    callers: Callers, recording: Recording, events: Sequence[EventRow]
) -> Iterator[tuple[int, int, str, int, int, Optional[int]]]:
    """Of COLUMNS. There are far fewer stacks than events."""
    named: dict[int, str] = {}
    for at, address, size, time, stack, thread in events:
        caller = named.get(stack)
        if caller is None:
            caller = named[stack] = callers.caller(Stack(*recording.rows.stack(stack))).text
        yield at, time, caller, size, address, recording.thread(thread).tid


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
