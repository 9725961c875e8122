"""List the slab objects that a task allocated."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Argument, Command
from dmods.commands._records import CALLER_ARGUMENTS, stack_values
from dmods.commands.allocdby import ALLOCATED, FREED, TOP, TOTALS
from dmods.errors import UsageError
from dmods.report import Report
from drgnext.commands._slabs import callers_asked, objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.tracks import Tracks

THREAD = Argument("thread", metavar="PID", help="the pid of a task; it may have exited")
_MOST = 100_000


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the allocations of the task."""
    return report(kernel, args, freed=False)


def report(kernel: Kernel, args: argparse.Namespace, freed: bool) -> Report:
    """Return the report of allocdby, or of freedby if ``freed``."""
    schema = FREED if freed else ALLOCATED
    slabs = objects_of(kernel)
    tracks = Tracks(slabs)
    tracks.require()
    try:
        pid = int(args.thread, 0)
        if not 0 <= pid < 1 << 31:
            raise ValueError
    except ValueError:
        raise UsageError(f"{args.thread!r} is not a pid", f"{schema.name} PID; `walk task --json` lists them") from None
    callers = callers_asked(kernel, args)
    count, size, records = tracks.newest(freed, pid, min(args.top or _MOST, _MOST))
    rows = [
        (
            *(one.bufctl, one.time, callers.caller(one.stack).text, one.requested, one.address, one.pid),
            *stack_values(callers, one.stack),
        )
        for one in records
    ]
    notes = list(tracks.notes)
    if len(rows) < count and args.top is None:
        notes.append(f"{count - len(rows)} older ones are not shown")
    return Report([schema.table(rows)], notes=notes, totals={"buffers": count, "bytes": size})


COMMAND = Command(
    name="allocdby",
    summary="the slab objects that a task allocated and that are still there, newest first",
    description="Needs slub_debug=U on the kernel's command line. Pid 0 stands for interrupts and idle CPUs.",
    run=run,
    tables=(ALLOCATED,),
    totals=TOTALS,
    arguments=(TOP, *CALLER_ARGUMENTS, THREAD),
    requires=(KERNEL,),
    examples=(("allocdby 1 --top 10", "the ten newest objects of init"),),
)
