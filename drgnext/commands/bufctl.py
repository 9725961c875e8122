"""Show the allocation records of slab objects, one a line."""

from __future__ import annotations

import argparse

from dmods.base.dataclass import replace
from dmods.command import KERNEL, Argument, Command
from dmods.commands._records import BRIEF, CALLER_ARGUMENTS, HEAD
from dmods.report import Report
from drgnext.commands._slabs import address_asked, audit, brief_row, callers_asked, objects_of, record_named
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.tracks import Tracks

ADDRESS = Argument("address", metavar="ADDR", help="a bufctl (struct track), or any address in a slab object")


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the record of an object."""
    slabs = objects_of(kernel)
    tracks = Tracks(slabs)
    callers = callers_asked(kernel, args)
    record = record_named(slabs, tracks, address_asked(kernel, args.address))
    report = Report()
    if args.verbose:
        report.tables += audit(slabs, tracks, callers, record)
    else:
        report.tables.append(BRIEF.table([brief_row(callers, record)]))
    report.notes += tracks.notes
    return report


COMMAND = Command(
    name="bufctl",
    summary="the record of a slab object: who allocated it, or who freed it, and when",
    description=(
        "Needs slub_debug=U on the kernel's command line. ADDR is the address of the struct track. TIMESTAMP is in\n"
        "ns since the boot. THRD is the pid. The record of a free object is that of its last free."
    ),
    run=run,
    tables=(BRIEF, replace(HEAD, when="with -v")),
    arguments=(
        Argument("-v", "--verbose", action="store_true", help="as bufctl_audit shows it"),
        *CALLER_ARGUMENTS,
        ADDRESS,
    ),
    requires=(KERNEL,),
    examples=(("bufctl 0xffff888003214090", "what findleaks shows as BUFCTL"),),
)
