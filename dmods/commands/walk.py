"""Addresses of one kind, one a line."""

from __future__ import annotations

import argparse

from dmods import heap as heaps
from dmods.command import Argument, Command
from dmods.errors import UsageError
from dmods.report import Column, Report, Table
from dmods.target import Target
from dmods.walkers import WALKERS

NAMES = (Column("name"), Column("summary"), Column("with_address", title="WITH ADDR"))


def run(target: Target, args: argparse.Namespace) -> Report:
    if args.walker is None:
        rows = [(name, walker.summary, walker.narrows or None) for name, walker in WALKERS.items()]
        return Report([Table("walkers", NAMES, rows)])
    walker = WALKERS[args.walker]
    if args.within is not None and not walker.narrows:
        raise UsageError(f"walk {args.walker} takes no address", f"walk {args.walker}")
    within = target.evaluate(args.within) if args.within is not None else None
    report = Report()
    # In text only the address is shown; ten million rows are made quicker without the rest.
    columns = walker.columns if args.json else walker.columns[:1]
    report.tables.append(Table(args.walker, columns, walker.rows(target, within, not args.json), style="plain"))
    if walker.of_heap:
        heap = heaps.of(target)
        report.notes.extend(heap.notes)
        if not heap.found:
            report.notes.insert(0, heaps.NO_HEAP)
    return report


COMMAND = Command(
    name="walk",
    summary="the addresses of leaks, buffers, arenas, threads or mappings, one a line",
    description="Walkers (`walk` alone lists them):\n"
    + "\n".join(
        f"  {name:<8} {walker.summary}" + (f";\n{'':11}with ADDR {walker.narrows}" if walker.narrows else "")
        for name, walker in WALKERS.items()
    )
    + "\nWith --json each address comes with what is known of it: size, state, arena; tid; end and path.",
    run=run,
    arguments=(
        Argument("walker", nargs="?", metavar="NAME", choices=list(WALKERS), help="what to walk"),
        Argument("within", nargs="?", metavar="ADDR", help="walk only what belongs to this address"),
    ),
    examples=(
        ("walk leak", "every direct leak"),
        ("walk buf 0x7f3a1c000030", "the allocated buffers of this arena"),
        ("walk mapping --json", "every mapping, with its end, flags and file"),
    ),
)
