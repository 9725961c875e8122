"""List the modules and their commands, as mdb's ::dmods does."""

from __future__ import annotations

import argparse

from dmods.command import Argument, Command, command_modules, load_command
from dmods.report import Column, Report, Schema, Value

MODULES = Schema("modules", "a module", (Column("module"),), when="without -l")
COMMANDS = Schema(
    "commands",
    "a command",
    (Column("module", width=24), Column("command", width=14), Column("summary")),
    when="with -l",
)


def run(_target: object, args: argparse.Namespace) -> Report:
    """Return the modules, or the commands of one of them."""
    modules = command_modules()
    totals: dict[str, Value] = {"modules": len(modules)}
    if args.long:
        rows = [(module, name, load_command(module).summary) for name, _side, module in modules]
        return Report([COMMANDS.table(rows)], totals=totals)
    names = [(module,) for _name, _side, module in modules]
    return Report([MODULES.table(names, style="plain")], totals=totals)


COMMAND = Command(
    name="dmods",
    summary="the modules and their commands",
    description="Each command is a module: a file in dmods/commands, or in drgnext/commands for kernels.",
    run=run,
    tables=(MODULES, COMMANDS),
    totals=(Column("modules", "count"),),
    arguments=(Argument("-l", "--long", action="store_true", help="show the command of each module and what it does"),),
    requires=(),
    examples=(("dmods", "the modules"), ("dmods -l", "what each command does")),
)
