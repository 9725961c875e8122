"""List the slab objects that a task freed."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Command
from dmods.commands._records import CALLER_ARGUMENTS
from dmods.commands.allocdby import FREED, TOP, TOTALS
from dmods.report import Report
from drgnext.commands.allocdby import THREAD, report
from drgnext.kernel.dump.target import Kernel


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the frees of the task."""
    return report(kernel, args, freed=True)


COMMAND = Command(
    name="freedby",
    summary="the slab objects that a task freed and that are still free, newest first",
    description=(
        "Needs slub_debug=U on the kernel's command line. A free object keeps its records until its memory is used\n"
        "again: `bufctl_audit` shows where it was freed."
    ),
    run=run,
    tables=(FREED,),
    totals=TOTALS,
    arguments=(TOP, *CALLER_ARGUMENTS, THREAD),
    requires=(KERNEL,),
    examples=(("freedby 1", "what init freed"),),
)
