"""Show one allocation record with its stack."""

from __future__ import annotations

import argparse

from dmods.command import Command
from dmods.commands._records import (
    CALLER_ARGUMENTS,
    HEAD,
    audit,
    callers_asked,
    date,
    entry_named,
    stack_table,
    thread_named,
)
from dmods.commands.bufctl import ADDRESS
from dmods.records.model import Transaction
from dmods.records.sources import allocation_records
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the record with its stack."""
    entry = entry_named(target, args.address)
    callers = callers_asked(target, args, lines=True)
    tables = list(audit(target, callers, entry))
    if isinstance(entry, Transaction) and entry.freed and entry.alloc_stack.frames:
        when = date(entry.recording, entry.alloc_time)
        title = f"freed; it had been allocated by {thread_named(entry.alloc_thread)}" + (f", {when}" if when else "")
        tables.append(stack_table(callers, entry.alloc_stack, "allocated_by", title))
    return Report(tables, notes=allocation_records(target).notes)


COMMAND = Command(
    name="bufctl_audit",
    summary="an allocation record with its stack: who allocated (or freed) a buffer, when, on which thread",
    description=(
        "This is mdb's `ADDR::bufctl_audit`. TIMESTAMP is nanoseconds of CLOCK_MONOTONIC, in hexadecimal as in mdb.\n"
        "THREAD is the tid. CACHE is the size class of the buffer. LASTLOG is the previous entry of the transaction\n"
        "log. CONTENTS is the address of a copy of the first bytes of a freed buffer; 0 where nothing was copied.\n\n"
        "The stack has source lines and inlined functions where debug information is on this machine (`findstack`).\n"
        "A stack that the frame limit of the auditor cuts ends with `...`."
    ),
    run=run,
    tables=(HEAD,),
    arguments=(*CALLER_ARGUMENTS, ADDRESS),
    requires=("userland", "audit"),
    examples=(
        ("bufctl_audit 0x7f3a1c0025c0", "the record that findleaks shows under BUFCTL"),
        ("bufctl_audit 0x55d0c8a012a0", "who allocated the buffer that this address is in"),
    ),
)
