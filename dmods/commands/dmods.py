"""mdb's ::dmods: the modules and their commands."""

from __future__ import annotations

import argparse

from dmods import command
from dmods.command import Argument, Command
from dmods.report import Column, Report, Table, Value

MODULES = (Column("module"),)
COMMANDS = (Column("module", width=24), Column("command", width=14), Column("summary"))


def run(_target: object, args: argparse.Namespace) -> Report:
    found = command.modules()
    totals: dict[str, Value] = {"modules": len(found)}
    if args.long:
        rows = [(module, name, command.load(module).summary) for name, _side, module in found]
        return Report([Table("commands", COMMANDS, rows)], totals=totals)
    return Report(
        [Table("modules", MODULES, [(module,) for _name, _side, module in found], style="plain")], totals=totals
    )


COMMAND = Command(
    name="dmods",
    summary="the modules and their commands",
    description="Each command is a module of its own: a file in dmods/commands, or in drgnext/commands for kernels.",
    run=run,
    arguments=(Argument("-l", "--long", action="store_true", help="with the command of each and what it does"),),
    requires=(),
    examples=(("dmods", "the modules"), ("dmods -l", "what each command does")),
)
