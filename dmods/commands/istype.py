"""Teach the type of a block."""

from __future__ import annotations

import argparse
from typing import Optional

from dmods.command import Argument, Command
from dmods.commands.whattype import TYPE, block_and_graph, type_table
from dmods.errors import UsageError
from dmods.graph.types.typed_rows import typed_blocks
from dmods.graph.types.typegraph import find_typegraph, teach
from dmods.report import Column, Report
from dmods.target import Target

_SESSION = "the type is kept as long as the target is open"


def run(target: Target, args: argparse.Namespace) -> Report:
    """Remember the type of the block, and return what that changed."""
    block, graph, _report = block_and_graph(target, args.address)
    if graph is None:
        raise UsageError("no module has debug information", "without it no type is known by name")
    name = " ".join(args.type)
    found = graph.types_named(name)
    size = found[0][2]
    if len({each[2] for each in found}) > 1:
        sizes = ", ".join(str(each[2]) for each in found)
        raise UsageError(f"several types have the name {name} (bytes: {sizes})", "dmods cannot distinguish them")
    if size > block.size:
        raise UsageError(
            f"{found[0][1]} has {size} bytes, and the block at {block.address:#x} only {block.size}",
            "give a type that fits",
        )
    return taught_report(target, args.address, block.address, name)


def taught_report(target: Target, text: str, address: int, name: Optional[str]) -> Report:
    """Teach a type, or that the block has no type. Return the block's type after that, and how many blocks have one."""
    before = _known(target)
    teach(target, address, name)
    block, graph, report = block_and_graph(target, text)
    if graph is not None:
        report.tables.append(type_table(graph, block, block.address))
    after = _known(target)
    report.notes.append(_SESSION)
    report.totals = {"typed_before": before, "typed_after": after}
    return report


def _known(target: Target) -> int:
    find_typegraph(target)
    return sum(row.total.count for row in typed_blocks(target).rows() if row.name.is_type)


TOTALS = (
    Column("typed_before", "count", about="blocks with a type, before the type was taught"),
    Column("typed_after", "count"),
)


COMMAND = Command(
    name="istype",
    summary="set the type of a block: blocks that it leads to get types, too",
    description=(
        "The block has this type, whatever other sources say. A block that is twice as large as the type or larger is\n"
        "an array. All types are computed again. `typed_before` and `typed_after` count the blocks that have a type."
    ),
    run=run,
    tables=(TYPE,),
    totals=TOTALS,
    arguments=(
        Argument("address", metavar="ADDR", help="an address in a block"),
        Argument("type", metavar="TYPE", nargs="+", help="a struct, class or union of the debug information"),
    ),
    examples=(("istype 0x55d0c8a012a0 struct client", "the block there is a struct client"),),
)
