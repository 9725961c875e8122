"""Show allocation records in mdb's layouts: ::bufctl's line, and ::bufctl_audit's head of two lines with its stack."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Optional

from dmods.command import Argument
from dmods.errors import UsageError, UserError
from dmods.heap.block import FREE
from dmods.heap.heap import find_heap
from dmods.process.shapes import STACK_COLUMNS, stack_columns
from dmods.records.callers import Callers
from dmods.records.model import Entry, Record, RecordedThread, Recording, Stack, Transaction
from dmods.records.sources import HOW_TO_LOG, require_records
from dmods.report import Column, Schema, Table, Value
from dmods.target import Target

INDENT = 17  # of a stack below its head

CALLER = Column("caller", about="the function that called the allocator, without wrappers")
REQUESTED = Column("requested", "bytes", title="ASKED FOR", null="it is not known")
EVENT = Column("event", hidden=True, about="live, allocated or freed")
BRIEF = Schema(
    "bufctl",
    "a record",
    (
        Column("addr", "address", width=16, about="the record"),
        Column("bufaddr", "address", width=16, about="the block"),
        Column("timestamp", "time", width=12),
        Column("thread", "count", width=5, title="THRD", null="it is not known"),
        CALLER,
        REQUESTED,
        EVENT,
        *STACK_COLUMNS,
    ),
    when="without -v",
)
_HEAD_COLUMNS = (
    Column("addr", "address", width=16, about="the record"),
    Column("bufaddr", "address", width=16, about="the block"),
    Column("timestamp", "time", width=16),
    Column("thread", "count", width=16, null="it is not known"),
    Column("", width=16),
    Column("cache", width=16, null="no live block is there"),
    Column("lastlog", "address", width=16, about="the last entry of the log for this block, or 0x0"),
    Column("contents", "address", width=16, about="the saved bytes of a freed block, or 0x0"),
    Column("caller", hidden=True),
    Column("requested", "bytes", hidden=True, null="it is not known"),
    Column("event", hidden=True, about="live, allocated or freed"),
    Column("thread_name", hidden=True, null="it is not known"),
    Column("date", hidden=True, null="it is not known", about="UTC"),
    *STACK_COLUMNS,
    Column("alloc_thread", "count", hidden=True, null="it is no freed block, or nobody recorded its allocation"),
    Column("alloc_thread_name", hidden=True, null="it is not known"),
    Column("alloc_date", hidden=True, null="it is not known"),
    *stack_columns("alloc_", "it is no freed block, or nobody recorded its allocation"),
)
HEAD = Schema("bufctl_audit", "a record", _HEAD_COLUMNS)
STACK = (Column("pc", "address", hidden=True), Column("where"))


def pattern(text: str) -> re.Pattern[str]:
    """Return the compiled pattern: the ``type`` of an argument that is a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


#: The arguments of every command that shows CALLER.
CALLER_ARGUMENTS = (
    Argument("--skip", type=pattern, metavar="REGEX", help="CALLER also skips functions whose name matches"),
    Argument(
        "--all-frames",
        action="store_true",
        help="CALLER is the function that called the allocator, even if it is a known wrapper such as xmalloc",
    ),
)

#: The argument of commands that show CALLER alone, and its column.
LINES = Argument(
    "--lines",
    action="store_true",
    help="show the source line of CALLER, where debug information is on this machine; also in stacks",
)
SOURCE = Column(
    "source",
    hidden=True,
    null="there is no debug information here, or the command does not look for it",
    about="the source line of the caller",
)


def callers_asked(target: Target, args: argparse.Namespace, lines: bool = False) -> Callers:
    """Return the Callers that CALLER_ARGUMENTS ask for. With `lines`, frames have their source lines."""
    return Callers(target, args.skip, args.all_frames, lines=lines)


def brief_row(callers: Callers, entry: Entry) -> tuple[Value, ...]:
    """Return the cells of BRIEF."""
    stack = entry.stack
    caller = callers.caller(stack).text
    cells = (address_of(entry), entry.address, entry.time, entry.thread.tid, caller, entry.requested, event(entry))
    return (*cells, *stack_values(callers, stack))


def audit(target: Target, callers: Callers, *entries: Entry) -> Iterator[Table]:
    """Yield the head and the stack of each entry for text, and one table of all records for JSON."""
    rows = [_audit_row(target, callers, entry) for entry in entries]
    yield HEAD.table(rows, only="json")
    for entry, row in zip(entries, rows):
        yield HEAD.table([row], fold=4, only="text")
        yield stack_table(callers, entry.stack)


def _audit_row(target: Target, callers: Callers, entry: Entry) -> tuple[Value, ...]:
    stack = entry.stack
    contents = entry.contents[0] if isinstance(entry, Transaction) and entry.contents is not None else 0
    last = entry.lastlog
    return (
        address_of(entry),
        entry.address,
        entry.time,
        entry.thread.tid,
        None,
        cache_of(target, entry),
        last.at if last is not None else 0,
        contents,
        callers.caller(stack).text,
        entry.requested,
        event(entry),
        entry.thread.name,
        date(entry.recording, entry.time),
        *stack_values(callers, stack),
        *_allocation(callers, entry),
    )


def _allocation(callers: Callers, entry: Entry) -> tuple[Value, ...]:
    """Return the alloc_ columns of HEAD: who had allocated a freed block."""
    if not isinstance(entry, Transaction) or not entry.freed or not entry.alloc_stack.frames:
        return (None,) * 5
    thread, when = entry.alloc_thread, date(entry.recording, entry.alloc_time)
    return thread.tid, thread.name, when, *stack_values(callers, entry.alloc_stack)


def stack_values(callers: Callers, stack: Stack) -> tuple[Value, Value]:
    """Return the cells of STACK_COLUMNS."""
    return lambda: callers.frames(stack), stack.truncated


def stack_table(callers: Callers, stack: Stack, name: str = "stack", title: str = "", indent: int = INDENT) -> Table:
    """Return the stack as text, indented below what it belongs to. JSON has it inside that record."""
    rows = [(frame[0], line) for frame in stack.frames for line in callers.text_lines(frame)]
    more = ["..."] if stack.truncated else [] if rows else ["(its stack was not recorded)"]
    footer = [f"{' ' * indent}{line}" for line in more]
    return Table(
        name, STACK, rows, style="plain", title=title, footer=footer, indent=indent, joined=not title, only="text"
    )


def address_of(entry: Entry) -> int:
    """Return the address of the entry itself."""
    return entry.bufctl if isinstance(entry, Record) else entry.at


def event(entry: Entry) -> str:
    """Return "live" for a record, or "allocated" or "freed" for a transaction."""
    return "live" if isinstance(entry, Record) else entry.event


def cache_of(target: Target, entry: Entry) -> Optional[str]:
    """Return "malloc-1032" (or "jemalloc-1024") for a live block, by its usable size, or None."""
    block = find_heap(target).index.block_at(entry.address) if isinstance(entry, Record) else None
    return f"{block.allocator.split()[-1]}-{block.size}" if block is not None else None


def date(recording: Recording, time: int) -> Optional[str]:
    """Return the date and time in UTC, or None if it is not known."""
    if recording.epoch is None:
        return None
    from datetime import datetime, timedelta, timezone  # few processes have records

    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=(time + recording.epoch) // 1000)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def thread_named(thread: RecordedThread) -> str:
    """Return a thread in words: "thread 1603 (worker)"."""
    if thread.tid is None:
        return "an unknown thread"
    return f"thread {thread.tid} ({thread.name})" if thread.name else f"thread {thread.tid}"


def sentence(callers: Callers, recording: Recording, thread: RecordedThread, time: int, stack: Stack) -> str:
    """Return an event in words: "main+0x12, thread 1603 (worker), 2026-11-21 13:40:12.123456 UTC"."""
    words = [callers.caller(stack).text, thread_named(thread), date(recording, time)]
    return ", ".join(word for word in words if word is not None)


def entry_named(target: Target, text: str) -> Entry:
    """Return the entry that a user means by an address: a bufctl, a log entry, or the record of the block there.

    For a freed block this is its last transaction. Raises UsageError and UserError.
    """
    records = require_records(target)
    address = target.evaluate(text)
    entry: Optional[Entry] = records.at(address) or records.of_block(address)
    if entry is not None:
        return entry
    block = find_heap(target).index.block_at(address)
    entry = records.of_block(block.address) if block is not None else None
    entry = entry or records.last_of(address)
    if entry is not None:
        return entry
    if block is None:
        how = "give what findleaks shows as BUFCTL, or an address in a buffer; `walk bufctl` lists all"
        raise UsageError(f"{text} is neither a bufctl nor an address in a buffer", how)
    if block.state == FREE:
        raise UserError(f"the buffer at {block.address:#x} is free, and the log does not go back to it", HOW_TO_LOG)
    why = "only samples were recorded" if records.sampled else "it may be older than the auditor"
    raise UserError(f"the buffer at {block.address:#x} has no record: {why}", "`walk bufctl` lists the records")
