"""Show the record of an oversized allocation: a block with a mapping of its own."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.commands._records import CALLER, CALLER_ARGUMENTS, REQUESTED, callers_asked, stack_table, stack_values
from dmods.commands.bufctl import ADDRESS
from dmods.errors import ASK_WHATIS, UsageError
from dmods.heap.block import FREE, Block
from dmods.heap.heap import find_heap
from dmods.process.shapes import STACK_COLUMNS
from dmods.records.callers import Callers
from dmods.records.model import Record
from dmods.records.sources import require_records
from dmods.report import Column, Report, Schema, Table
from dmods.target import Target

_SEGMENT = "the record of a block with a mapping of its own, or the block where nothing is recorded"
BRIEF = Schema(
    "vmem_seg",
    _SEGMENT,
    (
        Column("addr", "address", width=16, null="nothing is recorded", about="the record"),
        Column("type", width=4),
        Column("start", "address", width=16),
        Column("end", "address", width=16),
        Column("size", "bytes"),
        replace(CALLER, null="nothing is recorded"),
        replace(REQUESTED, null="nothing is recorded"),
        *STACK_COLUMNS,
    ),
    when="without -v, or where nothing is recorded",
)
HEAD = Schema(
    "vmem_seg",
    _SEGMENT,
    (
        Column("addr", "address", width=16, about="the record"),
        Column("type", width=4),
        Column("start", "address", width=16),
        Column("end", "address", width=16),
        Column("size", "bytes", width=16),
        Column("", width=16),
        Column("", width=4),
        Column("thread", "count", width=16, null="it is not known"),
        Column("timestamp", "time", width=16),
        Column("caller", hidden=True),
        Column("requested", "bytes", hidden=True),
        *STACK_COLUMNS,
    ),
    when="with -v",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the record of the block."""
    found = require_records(target)
    heap = find_heap(target)
    address = target.evaluate(args.address)
    entry = found.at(address)
    record = entry if isinstance(entry, Record) else None
    block = heap.index.block_at(record.address if record is not None else address)
    if block is None or block.state == FREE:
        raise UsageError(f"{args.address} is in no buffer", ASK_WHATIS)
    if not block.single:
        raise UsageError(f"{args.address} is of a buffer that is not oversized", f"bufctl_audit {args.address}")
    callers = callers_asked(target, args, lines=args.verbose)
    record = record or found.of_block(block.address)
    return Report(list(_tables(callers, block, record, args.verbose)), notes=[*found.notes, *heap.notes])


def _tables(callers: Callers, block: Block, record: Optional[Record], verbose: bool) -> list[Table]:
    extent = (record.bufctl if record is not None else None, "ALLC", block.address, block.end, block.size)
    caller = callers.caller(record.stack).text if record is not None else None
    requested = record.requested if record is not None else None
    stack = stack_values(callers, record.stack) if record is not None else (None, None)
    if not verbose or record is None:
        return [BRIEF.table([(*extent, caller, requested, *stack)])]
    head = (*extent, None, None, record.thread.tid, record.time, caller, requested, *stack)
    return [HEAD.table([head], fold=5), stack_table(callers, record.stack)]


COMMAND = Command(
    name="vmem_seg",
    summary="the record of an oversized allocation, one that has a mapping of its own",
    run=run,
    tables=(BRIEF, HEAD),
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="with thread, timestamp and stack"),
        *CALLER_ARGUMENTS,
        ADDRESS,
    ),
    requires=("userland", "audit"),
    examples=(("vmem_seg -v 0x7f3a1c0025c0", "the record that findleaks shows under VMEM_SEG"),),
)
