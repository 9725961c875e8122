"""One allocation record with its stack."""

from __future__ import annotations

import argparse

from dmods import records
from dmods.callers import Callers
from dmods.command import Command
from dmods.commands.bufctl import ADDRESS
from dmods.records import Transaction
from dmods.recordviews import audit, date, stack_table, thread_named
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    entry = records.named(target, args.address)
    callers = Callers(target)
    tables = list(audit(target, callers, entry))
    if isinstance(entry, Transaction) and entry.freed and entry.alloc_stack.frames:
        when = date(entry.recording, entry.alloc_time)
        title = f"freed; it had been allocated by {thread_named(entry.alloc_thread)}" + (f", {when}" if when else "")
        tables.append(stack_table(callers, entry.alloc_stack, "allocated_by", title))
    return Report(tables, notes=records.of(target).notes)


COMMAND = Command(
    name="bufctl_audit",
    summary="an allocation record with its stack: who allocated (or freed) a buffer, when, on which thread",
    description=(
        "mdb's `ADDR::bufctl_audit`. TIMESTAMP is nanoseconds of CLOCK_MONOTONIC, in hexadecimal as in mdb; THREAD\n"
        "the tid; CACHE the buffer's size class; LASTLOG the entry of the transaction log before this one; CONTENTS\n"
        "where a copy of the freed buffer's first bytes lies (0: there is none)."
    ),
    run=run,
    arguments=(ADDRESS,),
    requires=("userland", "audit"),
    examples=(
        ("bufctl_audit 0x7f3a1c0025c0", "the record that findleaks shows under BUFCTL"),
        ("bufctl_audit 0x55d0c8a012a0", "who allocated the buffer that this address is in"),
    ),
)
