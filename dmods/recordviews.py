"""Allocation records as mdb's users know them: ::bufctl's line, ::bufctl_audit's two-line head and its stack."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Optional

from dmods import heap as heaps
from dmods.callers import Callers
from dmods.records import Entry, Record, RecordedThread, Recording, Stack, Transaction
from dmods.report import Column, Table, Value
from dmods.target import Target

INDENT = 17  # of a stack below its head
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

CALLER = Column("caller")
REQUESTED = Column("requested", "bytes", title="ASKED FOR")
BRIEF = (
    Column("addr", "address", width=16),
    Column("bufaddr", "address", width=16),
    Column("timestamp", "time", width=12),
    Column("thread", "count", width=5, title="THRD"),
    CALLER,
    REQUESTED,
    Column("event", hidden=True),
)
HEAD = (
    Column("addr", "address", width=16),
    Column("bufaddr", "address", width=16),
    Column("timestamp", "time", width=16),
    Column("thread", "count", width=16),
    Column("", width=16),
    Column("cache", width=16),
    Column("lastlog", "address", width=16),
    Column("contents", "address", width=16),
    Column("caller", hidden=True),
    Column("requested", "bytes", hidden=True),
    Column("event", hidden=True),
    Column("thread_name", hidden=True),
    Column("date", hidden=True),
    Column("truncated", "count", hidden=True),
)
STACK = (Column("pc", "address", hidden=True), Column("where"))


def brief_row(callers: Callers, entry: Entry) -> tuple[Value, ...]:
    """Of BRIEF."""
    caller = callers.caller(entry.stack).text
    return address_of(entry), entry.address, entry.time, entry.thread.tid, caller, entry.requested, event(entry)


def audit(target: Target, callers: Callers, entry: Entry, suffix: str = "", joined: bool = False) -> Iterator[Table]:
    """The head and the stack below it."""
    stack = entry.stack
    contents = entry.contents[0] if isinstance(entry, Transaction) and entry.contents is not None else 0
    last = entry.lastlog
    row: tuple[Value, ...] = (
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
        int(stack.truncated),
    )
    yield Table(f"bufctl_audit{suffix}", HEAD, [row], fold=4, joined=joined)
    yield stack_table(callers, stack, f"stack{suffix}")


def stack_table(callers: Callers, stack: Stack, name: str = "stack", title: str = "", indent: int = INDENT) -> Table:
    """Indented below what it belongs to."""
    rows = [(frame[0], callers.name(frame)) for frame in stack.frames]
    more = ["..."] if stack.truncated else [] if rows else ["(its stack was not recorded)"]
    footer = [f"{' ' * indent}{line}" for line in more]
    return Table(name, STACK, rows, style="plain", title=title, footer=footer, indent=indent, joined=not title)


def address_of(entry: Entry) -> int:
    """Where the entry itself lies."""
    return entry.bufctl if isinstance(entry, Record) else entry.at


def event(entry: Entry) -> str:
    return "live" if isinstance(entry, Record) else entry.event


def cache_of(target: Target, entry: Entry) -> Optional[str]:
    """ "malloc-1032" (or "jemalloc-1024"), by the usable size of a block that is still there."""
    block = heaps.of(target).block_at(entry.address) if isinstance(entry, Record) else None
    return f"{block.allocator.split()[-1]}-{block.size}" if block is not None else None


def date(recording: Recording, time: int) -> Optional[str]:
    """The wall clock's, in UTC; None where that is not known, or no date."""
    if recording.epoch is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=(time + recording.epoch) // 1000)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def thread_named(thread: RecordedThread) -> str:
    """ "thread 1603 (worker)"."""
    if thread.tid is None:
        return "an unknown thread"
    return f"thread {thread.tid} ({thread.name})" if thread.name else f"thread {thread.tid}"


def sentence(callers: Callers, recording: Recording, thread: RecordedThread, time: int, stack: Stack) -> str:
    """ "main+0x12, thread 1603 (worker), 2026-11-21 13:40:12.123456 UTC"."""
    words = [callers.caller(stack).text, thread_named(thread), date(recording, time)]
    return ", ".join(word for word in words if word is not None)
