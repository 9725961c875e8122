"""Teach that the type of a block is not known."""

from __future__ import annotations

import argparse

from dmods.base.dataclass import replace
from dmods.command import Argument, Command
from dmods.commands.istype import TOTALS, taught_report
from dmods.commands.whattype import TYPE, block_and_graph
from dmods.report import Report
from dmods.target import Target


def run(target: Target, args: argparse.Namespace) -> Report:
    """Forget the type of the block, and return what that changed."""
    block, _graph, _report = block_and_graph(target, args.address)
    return taught_report(target, args.address, block.address, None)


COMMAND = Command(
    name="notype",
    summary="reject the type that was found for a block: no type spreads from it",
    description=(
        "Use it for a block with a wrong type. All types are computed again, and the block has no type. `istype` sets\n"
        "one."
    ),
    run=run,
    tables=(replace(TYPE, when="where a module has debug information"),),
    totals=TOTALS,
    arguments=(Argument("address", metavar="ADDR", help="an address in a block"),),
    examples=(("notype 0x55d0c8a012a0", "the block there has no type"),),
)
