"""Count the objects of a Go process by type."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command, positive
from dmods.errors import UserError
from dmods.heap.heap import find_heap
from dmods.report import Column, Report, Schema, Value
from dmods.runtimes.golang.mheap import find_mheap
from dmods.runtimes.golang.objects import GoTypes, go_types
from dmods.target import Target

_FEW = 30  # types that are shown unless --top says otherwise
_MOST_LISTED = 1_000_000

TYPES = Schema(
    "types",
    "a type of Go",
    (
        Column("count", "count", width=10),
        Column("bytes", "bytes", width=12),
        Column("average", "bytes", width=8),
        Column("type"),
        Column("shape", hidden=True, about="one, array, map, channel and the like"),
        Column("value_bytes", "bytes", hidden=True, about="of one value of the type"),
    ),
    when="without --type",
)
UNKNOWN = Schema(
    "unknown",
    "a size of objects whose type is not known",
    (
        Column("count", "count", width=10),
        Column("bytes", "bytes", width=12),
        Column("size", "bytes", width=8),
        Column("pointers", title="MAY HAVE POINTERS", about="yes or no"),
    ),
    when="without --type, where there are some",
)
OBJECTS = Schema(
    "objects",
    "an object",
    (
        Column("address", "address", width=16),
        Column("bytes", "bytes", width=8),
        Column("state", about="live or garbage"),
        Column("type"),
    ),
    when="with --type",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the histogram, or the objects of a type."""
    types = go_types(target)
    if types is None:
        raise UserError(
            find_mheap(target).refusal or "the process has no Go runtime",
            "this command reads Go 1.19 to 1.27; --exe names the program, and --sysroot the root that has it",
        )
    rows = sorted(types.rows(), key=lambda row: (-row[2], row[0].text))
    report = Report(notes=list(find_heap(target).notes))
    if args.type is not None:
        return _listed(target, types, args, report)
    most = args.top or _FEW
    cells = [(count, size, size // count, kind.text, kind.shape, kind.size) for kind, count, size in rows]
    report.tables.append(TYPES.table(cells[:most]))
    if len(cells) > most:
        report.notes.append(f"{len(cells) - most} more types are not shown (--top)")
    rest = sorted(types.rest(), key=lambda row: (-row[3], row[0]))
    if rest:
        untyped = [(count, total, size, "yes" if pointers else "no") for size, pointers, count, total in rest]
        title = "objects whose type is not known, by size"
        report.tables.append(UNKNOWN.table(untyped[:most], title=title))
    report.totals = {
        "types": len(rows),
        "objects": sum(row[1] for row in rows) + sum(row[2] for row in rest),
        "bytes": sum(row[2] for row in rows) + sum(row[3] for row in rest),
        "unknown": sum(row[2] for row in rest),
        "unknown_bytes": sum(row[3] for row in rest),
    }
    return report


def _listed(target: Target, types: GoTypes, args: argparse.Namespace, report: Report) -> Report:
    """Return the objects of a type."""
    wanted = [(kind, count, size) for kind, count, size in types.rows() if kind.text == args.type]
    if not wanted:
        raise UserError(f"no object has the type {args.type}", "`goobjects` lists the types")
    heap = find_heap(target)
    cells: list[tuple[Value, ...]] = []
    most = min(args.top or _FEW, _MOST_LISTED)
    for shape, name in {(kind.shape, kind.name) for kind, _count, _size in wanted}:
        for address, size in types.engine.listed(shape, name, most - len(cells)):
            block = heap.block_at(address)
            garbage = block is not None and heap.marks.is_garbage(block)
            cells.append((address, size, "garbage" if garbage else "live", args.type))
    total = sum(count for _kind, count, _size in wanted)
    report.tables.append(OBJECTS.table(sorted(cells)))
    if total > len(cells):
        report.notes.append(f"{total - len(cells)} more objects are not shown (--top)")
    report.totals = {"objects": total, "bytes": sum(size for _kind, _count, size in wanted)}
    return report


TOTALS = (
    Column("types", "count", when="without --type"),
    Column("objects", "count"),
    Column("bytes", "bytes"),
    Column("unknown", "count", when="without --type", about="objects whose type is not known"),
    Column("unknown_bytes", "bytes", when="without --type"),
)


COMMAND = Command(
    name="goobjects",
    summary="the objects of a Go process by type: count and bytes",
    description=(
        "All objects in use count, also garbage that is not yet collected. Bytes are those of the size class. Neither\n"
        "symbols nor debug information are needed: larger objects name their type (Go 1.22 and later), interface\n"
        "values have a type beside a pointer, and the runtime's descriptions of types say what a field points to.\n"
        "A name is given where the size proves that the value is the whole object. Other objects are counted by size.\n"
        '"[]T" is an array of values of the type T: that of a slice, or the buffer of a channel.'
    ),
    run=run,
    tables=(TYPES, UNKNOWN, OBJECTS),
    totals=TOTALS,
    arguments=(
        Argument("--top", type=positive, metavar="N", help=f"the first N types or objects ({_FEW})"),
        Argument("--type", metavar="NAME", help="list the objects of this type"),
    ),
    examples=(
        ("goobjects", "what the objects are"),
        ("goobjects --type main.session --top 5", "five objects of this type"),
    ),
)
