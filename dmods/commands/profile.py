"""Make a heap profile: which functions (or types, owners, threads) hold the memory, as text or as a file."""

from __future__ import annotations

import argparse
import os

from dmods.command import Argument, Command
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
from dmods.corefile.target import CoreFile
from dmods.errors import UsageError
from dmods.profile.forms import check_difference, form
from dmods.profile.model import TYPES, Profile
from dmods.profile.sources import GRAPH, NAMES, opened, profile_of
from dmods.profile.view import BY, OWNER, TYPE, View, difference
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the profile as a table, or write it to a file."""
    check_view(args)
    write = form(args.output) if args.output is not None else None  # before minutes of work
    if args.base is not None and args.output is not None:
        check_difference(args.output)
    details = args.details or args.by in (TYPE, OWNER)
    profile = profile_of(target, args.source, details, args.all_frames)
    if args.base is not None:
        profile = difference(profile, _base(target, args, details))
    return report_of(View(profile, args.sample, args.focus, args.ignore, args.by), args, write)


def _base(target: Target, args: argparse.Namespace, details: bool) -> Profile:
    if target.path is not None and os.path.realpath(args.base) == os.path.realpath(target.path):
        raise UsageError("a core is compared with itself", "--base takes an older core, or a .pb.gz file")

    def core(path: str) -> CoreFile:
        return CoreFile(path, getattr(args, "exe", None), getattr(args, "sysroot", None))

    return opened(args.base, core, args.source, details, args.all_frames)


COMMAND = Command(
    name="profile",
    summary="a heap profile: what holds the memory, as a table, for pprof, or as a flame graph",
    description=(
        "FLAT is what a function allocated itself. CUM is what it and all that it called allocated, as in pprof.\n"
        "Sources: the auditor's records, jemalloc's (prof:true), tcmalloc's (TCMALLOC_SAMPLE_PARAMETER), gperftools'\n"
        "(HEAPPROFILE), Go's runtime, or `graph`:\n"
        "a core without records has chains of holders instead of callers. `maps` is address space by who mapped it.\n"
        "If only samples were recorded, dmods scales them to estimates.\n\n" + FORMS_HELP
    ),
    run=run,
    tables=profile_tables(),
    totals=TOTALS,
    arguments=(
        *VIEW_ARGUMENTS,
        Argument("--source", choices=NAMES, help=f"the source of the profile (records if there are any, else {GRAPH})"),
        Argument(
            "--sample",
            choices=[name for name, _unit in TYPES],
            default="inuse_space",
            help="the value to count (inuse_space)",
        ),
        *FILTER_ARGUMENTS,
        Argument("--by", choices=BY, default="function", help="what makes a row (function)"),
        TOP_ARGUMENT,
        Argument("--details", action="store_true", help="label samples with state, type and owner: it takes longer"),
        Argument("--all-frames", action="store_true", help="keep the frames of the allocator itself"),
        Argument("--base", metavar="CORE|FILE", help="subtract an older core's profile, or that of a .pb.gz file"),
        OUTPUT_ARGUMENT,
    ),
    examples=(
        ("profile --top 5", "the five functions that hold the most memory"),
        ("profile peek parse", "the callers and callees of the functions whose name contains parse"),
        ("profile --base core.1 -o grown.html", "what grew since an older core, as a picture"),
    ),
)
