"""Make a profile of a kernel's slab objects: which functions hold the memory, as text or as a file."""

from __future__ import annotations

import argparse

from dmods.command import KERNEL, Argument, Command
from dmods.commands._profile import (
    FILTER_ARGUMENTS,
    FORMS_HELP,
    OUTPUT_ARGUMENT,
    TOP_ARGUMENT,
    TOTALS,
    VIEW_ARGUMENTS,
    check_view,
    profile_tables,
    report_of,
)
from dmods.profile.forms import form
from dmods.profile.model import IN_USE, SPACE
from dmods.profile.pprof import read
from dmods.profile.view import FILE, FUNCTION, LIBRARY, View, difference
from dmods.report import Report
from drgnext.commands._slabs import objects_of
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.slabs.callers import KernelCallers
from drgnext.kernel.slabs.profile import from_tracks


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the profile as a table, or write it to a file."""
    check_view(args)
    write = form(args.output) if args.output is not None else None  # before minutes of work
    callers = KernelCallers(kernel, None, args.all_frames, lines=True)
    profile = from_tracks(kernel, objects_of(kernel), callers)
    if args.base is not None:
        profile = difference(profile, read(args.base))
    return report_of(View(profile, args.sample, args.focus, args.ignore, args.by), args, write)


COMMAND = Command(
    name="profile",
    summary="a profile of the slab objects: what holds the memory, as a table, for pprof, or as a flame graph",
    description=(
        "Needs slub_debug=U on the kernel's command line. FLAT is what a function allocated itself. CUM is what it\n"
        "and all that it called allocated, as in pprof. Objects of caches without records are one row.\n\n" + FORMS_HELP
    ),
    run=run,
    tables=profile_tables((FUNCTION, FILE, LIBRARY)),
    totals=TOTALS,
    arguments=(
        *VIEW_ARGUMENTS,
        Argument(
            "--sample", choices=[name for name, _unit in IN_USE], default=SPACE, help="the value to count (inuse_space)"
        ),
        *FILTER_ARGUMENTS,
        Argument("--by", choices=(FUNCTION, FILE, LIBRARY), default=FUNCTION, help="what makes a row (function)"),
        TOP_ARGUMENT,
        Argument("--all-frames", action="store_true", help="keep the frames of the allocator itself"),
        Argument("--base", metavar="FILE", help="subtract the profile in a .pb.gz file of an older dump"),
        OUTPUT_ARGUMENT,
    ),
    requires=(KERNEL,),
    examples=(
        ("profile --top 5", "the five functions that hold the most slab memory"),
        ("profile -o slab.html", "the same as a picture"),
    ),
)
