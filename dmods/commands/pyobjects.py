"""Count the objects of a CPython process by type."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command, positive
from dmods.commands._python import python_of
from dmods.errors import UserError
from dmods.heap.heap import find_heap
from dmods.heap.python_objects import in_cycles, objects_in
from dmods.report import Column, Report, Schema, Value
from dmods.runtimes.python.describe import describe
from dmods.runtimes.python.memory import Objects
from dmods.target import Target

_FEW = 30  # types that are shown unless --top says otherwise
_MOST_LISTED = 1_000_000

TYPES = Schema(
    "types",
    "a type",
    (
        Column("count", "count", width=10),
        Column("bytes", "bytes", width=12),
        Column("average", "bytes", width=8),
        Column("type"),
        Column("type_address", "address", title="AT"),
        Column("tracked", "count", hidden=True, about="the part that the garbage collector looks at"),
        Column("tracked_bytes", "bytes", hidden=True, about="the part that the garbage collector looks at"),
    ),
    when="without --type",
)
OBJECTS = Schema(
    "objects",
    "an object",
    (
        Column("address", "address", width=16),
        Column("bytes", "bytes", width=8),
        Column("references", "count", width=10, null="it is not known"),
        Column("type"),
        Column("value", about="in words, or empty"),
        Column("tracked", "flag", hidden=True, about="whether the garbage collector looks at it"),
    ),
    when="with --type",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the histogram, or the objects of a type."""
    python = python_of(target)
    heap = find_heap(target)
    objects = python.objects
    report = Report(notes=[*python.notes, *heap.notes])
    minor = python.layout.version[1]
    memory = in_cycles(heap, minor) if args.cycles else objects_in(heap, minor)
    rows, _found = memory.census()
    named = sorted(((_name(objects, row[0]), *row) for row in rows), key=lambda row: (-row[3], row[0]))
    if args.type is not None:
        wanted = [row[1] for row in named if args.type in (row[0], row[0].rpartition(".")[2])]
        if not wanted:
            which = "object in a cycle" if args.cycles else "object"
            raise UserError(f"no {which} has the type {args.type}", "without --type, `pyobjects` lists the types")
        most = min(args.top or _FEW, _MOST_LISTED)
        _rows, found = memory.census(wanted, most)
        report.tables.append(OBJECTS.table([_object(objects, each) for each in found]))
        total = sum(row[2] for row in named if row[1] in wanted)
        if total > len(found):
            report.notes.append(f"{total - len(found)} more objects are not shown (--top)")
        report.totals = {"objects": total, "bytes": sum(row[3] for row in named if row[1] in wanted)}
        return report
    shown = named[: args.top or _FEW]
    if len(shown) < len(named):
        report.notes.append(f"{len(named) - len(shown)} more types are not shown (--top)")
    cells = [(row[2], row[3], row[3] // max(row[2], 1), row[0], row[1], row[4], row[5]) for row in shown]
    report.tables.append(TYPES.table(cells))
    report.totals = {
        "release": python.layout.name,
        "types": len(named),
        "objects": sum(row[2] for row in named),
        "bytes": sum(row[3] for row in named),
    }
    return report


def _name(objects: Objects, kind: int) -> str:
    """Return the name of a type as tp_name has it: without the module, if a class statement made it."""
    found = objects.type_at(kind)
    return found.name if found is not None else hex(kind)


def _object(objects: Objects, found: tuple[int, int, int, bool]) -> tuple[Value, ...]:
    address, kind, size, tracked = found
    said = describe(objects, address)
    return (
        address,
        size,
        said.references if said is not None else None,
        _name(objects, kind),
        said.value if said is not None else "",
        tracked,
    )


TOTALS = (
    Column("release", "text", when="without --type"),
    Column("types", "count", when="without --type"),
    Column("objects", "count"),
    Column("bytes", "bytes"),
)


COMMAND = Command(
    name="pyobjects",
    summary="the objects of a CPython process by type: count and bytes",
    description=(
        "Bytes are those of sys.getsizeof: the object, the links of the collector before it, and the buffers that it\n"
        "alone owns (of list, dict, set, str, bytearray, deque and array). All objects on the heap count, also those\n"
        "that the collector does not track. Objects in static memory (built-in types, None, small ints since 3.12)\n"
        "and dead objects in free lists do not count.\n\n"
        "--cycles counts only the objects that nothing but cycles of references holds, and that the collector would\n"
        "free at its next run. If there are many, the collector is off, or late. The count is a lower bound: a cycle\n"
        "that an old word leads to, or a class in a cycle, may count as in use."
    ),
    run=run,
    tables=(TYPES, OBJECTS),
    totals=TOTALS,
    arguments=(
        Argument("--top", type=positive, metavar="N", help=f"the first N types or objects ({_FEW})"),
        Argument("--cycles", action="store_true", help="only objects that the collector would free"),
        Argument("--type", metavar="NAME", help="list the objects of this type, with their values"),
    ),
    examples=(
        ("pyobjects", "what the objects are"),
        ("pyobjects --cycles", "what waits for the collector"),
        ("pyobjects --type dict --top 5", "five dictionaries, with their sizes"),
    ),
)
