"""List addresses of one kind, one a line."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command
from dmods.commands._walker import help_of, list_of, list_schema, name_argument, walker_schemas
from dmods.commands._walkers import WALKERS, Query, parse_sizes
from dmods.errors import UsageError
from dmods.heap.heap import find_heap
from dmods.heap.no_heap import no_heap
from dmods.heap.verdict import heap_verdict, judge, leak_verdict
from dmods.report import Column, Report
from dmods.target import Target

_NARROWED = Column("with_address", title="WITH ADDR")


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the addresses that the walker finds."""
    if args.walker is None:
        return list_of(WALKERS, _NARROWED)
    walker = WALKERS[args.walker]
    if args.within is not None and not walker.narrows:
        raise UsageError(f"walk {args.walker} takes no address", f"walk {args.walker}")
    if args.size is not None and not walker.of_blocks:
        sized = ", ".join(name for name, each in WALKERS.items() if each.of_blocks)
        raise UsageError(f"walk {args.walker} takes no --size", f"these do: {sized}")
    if (args.type is not None or args.shape is not None) and not walker.typed:
        typed = ", ".join(name for name, each in WALKERS.items() if each.typed)
        raise UsageError(f"walk {args.walker} takes no --type and no --shape", f"these do: {typed}")
    if args.type is not None and args.shape is not None:
        raise UsageError("--type and --shape exclude each other", "`types` says which of the two a line is")
    within = target.evaluate(args.within) if args.within is not None else None
    report = Report(for_scripts=True)
    # Text shows only the address. Ten million rows are made faster without the other cells.
    query = Query(within, args.size, brief=not args.json, type=args.type, shape=args.shape)
    report.tables.append(walker.table(args.walker, walker.rows(target, query), args.json))
    if walker.of_heap:
        heap = find_heap(target)
        report.notes.extend(heap.notes)
        if not heap.found:
            report.notes.insert(0, no_heap(target))
        if walker.of_leaks:  # an empty list would read as clean, or as an empty heap
            judge(report, leak_verdict(heap))
        elif walker.of_blocks or not heap.found:
            judge(report, heap_verdict(heap))
        if args.walker == "arena":
            report.notes.extend(
                f"{one.name} has no arenas: `walk buf ADDR` takes any address in its memory"
                for one in heap.heaps
                if not one.has_arenas
            )
    return report


COMMAND = Command(
    name="walk",
    summary="the addresses of leaks, buffers, arenas, threads or mappings, one a line",
    description=help_of(WALKERS, "ADDR", 8)
    + "\nWith --json each address comes with what is known of it: size, state, arena; tid; end and path.\n"
    "--size is for walkers of buffers. Sizes are usable bytes, as in `findleaks` and `heapsizes`.",
    run=run,
    tables=(list_schema(_NARROWED), *walker_schemas(WALKERS)),
    verdict=True,
    arguments=(
        name_argument(WALKERS),
        Argument(
            "--size", type=parse_sizes, metavar="N[..M]", help="only buffers of N bytes, or of N to M: 64, 1K..4K, 1M.."
        ),
        Argument("--type", metavar="T", help="only buffers of this type, as `types` prints it (walk buf)"),
        Argument("--shape", metavar="S", help="only buffers of this shape, or of this ID (walk buf)"),
        Argument("within", nargs="?", metavar="ADDR", help="walk only what belongs to this address"),
    ),
    examples=(
        ("walk leak", "every direct leak"),
        ("walk buf 0x7f3a1c000030", "the allocated buffers of this arena"),
        ("walk buf --size 1M..", "the allocated buffers of a megabyte or more"),
        ("walk buf --type Customer", "the allocated objects of the class Customer"),
        ("walk buf --shape s1f3a9", "the allocated buffers whose shape has this ID in `types`"),
        ("walk mapping --json", "every mapping, with its end, flags and file"),
    ),
)
