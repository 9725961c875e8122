"""Show blocks whose guards were overwritten: what was written, and whose block it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.hexdump import ascii_of
from dmods.commands._records import stack_table, stack_values
from dmods.heap.guards import AFTER, Change, Overwritten, Verification
from dmods.process.shapes import STACK_COLUMNS, stack_columns
from dmods.records.callers import Callers
from dmods.records.model import Stack, Transaction
from dmods.report import Column, Schema, Table, Value

SHOWN = 50  # blocks
_MOST_CHANGES = 8  # changes of each block in text
_MOST_TEXT = 16  # bytes of a change in text
_MOST_JSON = 256  # bytes of a change in JSON
_EXPECTED_TEXT = 4  # bytes: the auditor's patterns repeat after four

GUARDS = Schema(
    "guards",
    "a run of bytes that was written over the guards of a block, or into it after its free",
    (
        Column("block", "address", width=16),
        Column("requested", "bytes", title="ASKED FOR"),
        Column(
            "side", title="WRITTEN", about="where the bytes lie: after the end, after the free, or before another block"
        ),
        Column("offset", "count", title="AT OFFSET", about="bytes from the start of the block"),
        Column("length", "bytes", title="BYTES"),
        Column("expected", hidden=True, about="hexadecimal digits, at most 256 bytes"),
        Column("found", hidden=True, about="hexadecimal digits, at most 256 bytes"),
        Column("expected_text", title="EXPECTED", about="the first bytes"),
        Column("found_text", title="FOUND", about="the first bytes"),
        Column("text", about="the first bytes found, as ASCII"),
        Column("caller", title="ALLOCATED BY", null="the stack of the allocation is not known"),
        Column("freed_by", null="the block was not freed", when="where a block was freed"),
        Column("usable", "bytes", hidden=True, null="it is not known"),
        Column("thread", "count", hidden=True, null="it is not known", about="the thread that allocated the block"),
        *STACK_COLUMNS,
        Column("free_thread", "count", hidden=True, null="the block was not freed, or it is not known"),
        *stack_columns("free_", "the block was not freed"),
    ),
    when="where guards were overwritten",
)
SIDES = {AFTER: "after its end"}


def guards_table(callers: Callers, findings: Sequence[Overwritten], title: str = "Overwritten guards") -> Table:
    """Return a row for each run of bytes that was written. ``freed_by`` is hidden if no block was freed."""
    rows = [
        row
        for finding in findings
        for row in (_row(callers, finding, change) for change in finding.changes[:_MOST_CHANGES])
    ]
    freed = any(finding.side != AFTER for finding in findings)
    columns = [column for column in GUARDS.columns if freed or column.name != "freed_by"]
    if not freed:
        rows = [row[:_FREED_BY] + row[_FREED_BY + 1 :] for row in rows]
    return GUARDS.table(rows, columns, title=title)


_FREED_BY = next(index for index, column in enumerate(GUARDS.columns) if column.name == "freed_by")


def _row(callers: Callers, finding: Overwritten, change: Change) -> tuple[Value, ...]:
    owner, freed = _stacks(finding)
    entry = finding.entry
    free_thread = entry.thread.tid if isinstance(entry, Transaction) else None
    thread = entry.alloc_thread.tid if isinstance(entry, Transaction) else entry.thread.tid
    return (
        finding.address,
        finding.requested,
        f"before {finding.above:#x}" if finding.above is not None else SIDES.get(finding.side, "after its free"),
        change.offset,
        len(change.found),
        change.expected[:_MOST_JSON].hex(),
        change.found[:_MOST_JSON].hex(),
        _short(change.expected, _EXPECTED_TEXT),
        _short(change.found, _MOST_TEXT),
        ascii_of(change.found[:_MOST_TEXT]),
        callers.caller(owner).text if owner is not None else None,
        callers.caller(freed).text if freed is not None else None,
        finding.usable,
        thread,
        *(stack_values(callers, owner) if owner is not None else (None, None)),
        free_thread,
        *(stack_values(callers, freed) if freed is not None else (None, None)),
    )


def _stacks(finding: Overwritten) -> tuple[Optional[Stack], Optional[Stack]]:
    """Return the stack of the owner and that of the free, where they are known."""
    entry = finding.entry
    if not isinstance(entry, Transaction):
        return entry.stack, None
    owner = entry.alloc_stack
    return (owner if owner.frames else None), entry.stack


def _short(data: bytes, most: int) -> str:
    return data[:most].hex(" ", -4) + ("..." if len(data) > most else "")


def guards_stacks(callers: Callers, findings: Sequence[Overwritten]) -> Iterator[Table]:
    """Yield the stacks of the blocks as text, for -v."""
    for finding in findings:
        owner, freed = _stacks(finding)
        for what, stack in (("allocated", owner), ("freed", freed)):
            if stack is not None:
                yield stack_table(callers, stack, title=f"block {finding.address:#x} was {what} by")


def guards_notes(found: Verification) -> Iterator[str]:
    """Yield what the verification left out."""
    if found.unreadable:
        yield f"{found.unreadable} guards are not in the dump: whether they were overwritten is not known"
    if found.skipped:
        yield f"{found.skipped} freed blocks were not compared: there are too many"
    hidden = found.damaged - min(len(found.blocks), SHOWN)
    if hidden > 0:
        yield f"{hidden} more blocks with overwritten guards are not shown"


def guards_sentence(finding: Overwritten) -> str:
    """Return in words what was written where, for whatis."""
    change = finding.changes[0]
    if finding.above is not None:
        at = f"{len(change.found)} bytes were written before the start of the block {finding.above:#x}, behind it"
        return f"{at}: {_short(change.found, _MOST_TEXT)} ({ascii_of(change.found[:_MOST_TEXT])})"
    where = (
        f"{len(change.found)} bytes were written beyond its {finding.requested} bytes, at offset {change.offset}"
        if finding.side == AFTER
        else f"{len(change.found)} bytes were written after it was freed, at offset {change.offset}"
    )
    return f"{where}: {_short(change.found, _MOST_TEXT)} ({ascii_of(change.found[:_MOST_TEXT])})"
