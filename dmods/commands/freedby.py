"""List the buffers that a thread freed."""

from __future__ import annotations

import argparse

from dmods.command import Command
from dmods.commands._records import CALLER_ARGUMENTS
from dmods.commands.allocdby import FREED, THREAD, TOP, TOTALS, report
from dmods.records.sources import require_records
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the frees of the thread."""
    return report(target, require_records(target, log=True), args, freed=True)


COMMAND = Command(
    name="freedby",
    summary="the buffers that a thread freed, newest first, as far as the records go back",
    description=(
        "BUFCTL is the entry of the log: `bufctl_audit` shows where it was freed, and where allocated. With guards\n"
        "and no log, BUFCTL is the buffer's own record: it shows where the buffer was freed, and stays until the\n"
        "memory is used again."
    ),
    run=run,
    tables=(FREED,),
    totals=TOTALS,
    arguments=(TOP, *CALLER_ARGUMENTS, THREAD),
    requires=("userland", "audit"),
    examples=(("freedby 1607", "what thread 1607 freed"),),
)
