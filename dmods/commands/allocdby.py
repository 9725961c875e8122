"""List the buffers that a thread allocated."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Optional

from dmods.command import Argument, Command, positive
from dmods.commands._records import CALLER, CALLER_ARGUMENTS, REQUESTED, callers_asked, stack_values
from dmods.errors import UsageError
from dmods.process.shapes import STACK_COLUMNS
from dmods.records.callers import Callers
from dmods.records.model import Recording, Records, Stack
from dmods.records.sources import require_records
from dmods.report import Column, Report, Schema, Value
from dmods.target import Target

if TYPE_CHECKING:
    from dmods._engine import RecordRow

_COLUMNS = (
    Column("bufctl", "address", width=16, about="its record"),
    Column("timestamp", "time", width=12),
    CALLER,
    REQUESTED,
    Column("bufaddr", "address", hidden=True, about="the block"),
    Column("thread", "count", hidden=True, null="it is not known"),
    *STACK_COLUMNS,
)
ALLOCATED = Schema("allocdby", "a block that the thread allocated and that is still there, newest first", _COLUMNS)
FREED = Schema("freedby", "a block that the thread freed, newest first", _COLUMNS)
TOTALS = (Column("buffers", "count"), Column("bytes", "bytes"))
THREAD = Argument("thread", metavar="THREAD", help="tid, pthread_t or name; it may have exited")
TOP = Argument("--top", type=positive, metavar="N", help="only the N newest")
_TIME = 1  # its place among the columns


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the allocations of the thread."""
    return report(target, require_records(target), args)


def report(target: Target, found: Records, args: argparse.Namespace, freed: bool = False) -> Report:
    """Return the report of allocdby, or of freedby if `freed`."""
    newest = found.newest(freed, *thread_meant(target, found, args.thread), args.top)
    callers = callers_asked(target, args)
    rows = merge(*(_rows(callers, *part) for part in newest.events), key=itemgetter(_TIME), reverse=True)
    totals = {"buffers": newest.count, "bytes": newest.bytes}
    schema = FREED if freed else ALLOCATED
    return Report([schema.table(islice(rows, args.top))], notes=found.notes, totals={**totals})


def _rows(callers: Callers, recording: Recording, events: Sequence[RecordRow]) -> Iterator[tuple[Value, ...]]:
    """Yield the cells of _COLUMNS. There are far fewer stacks than events, so each stack is looked up once."""
    known: dict[int, tuple[str, tuple[Value, Value]]] = {}
    for row in events:
        found = known.get(row.stack)
        if found is None:
            stack = Stack(*recording.rows.stack(row.stack))
            found = known[row.stack] = callers.caller(stack).text, stack_values(callers, stack)
        thread = recording.thread(row.thread).tid
        yield row.at, row.time, found[0], row.size, row.address, thread, *found[1]


def thread_meant(target: Target, found: Records, text: str) -> tuple[str, Optional[int]]:
    """Return the text and its value as a number, of a thread that a recorder knows. Raises UsageError."""
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
    tables=(ALLOCATED,),
    totals=TOTALS,
    arguments=(TOP, *CALLER_ARGUMENTS, THREAD),
    requires=("userland", "audit"),
    examples=(("allocdby 1607", "what thread 1607 allocated"), ("allocdby worker", "what threads of this name did")),
)
