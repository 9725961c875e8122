"""mdb's ::dmods: the modules and their commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from dmods import command
from dmods.command import Argument, Command
from dmods.report import Column, Report, Table, Value
from dmods.target import Target

MODULES = (Column("module"),)
COMMANDS = (Column("module", width=24), Column("command", width=14), Column("summary"))


def run(_target: Target, args: argparse.Namespace) -> Report:
    found = command.names()
    if args.long:
        return Report([Table("commands", COMMANDS, list(_each(found)))], totals={"modules": len(found)})
    return Report(
        [Table("modules", MODULES, [(_module(name),) for name in found], style="plain")], totals={"modules": len(found)}
    )


def _each(names: list[str]) -> Iterator[tuple[Value, ...]]:
    for name in names:
        yield _module(name), name, command.find(name).summary


def _module(name: str) -> str:
    return f"dmods.commands.{name}"


COMMAND = Command(
    name="dmods",
    summary="the modules and their commands",
    description="Each command is a module of its own: a file in dmods/commands.",
    run=run,
    arguments=(Argument("-l", "--long", action="store_true", help="with the command of each and what it does"),),
    requires=(),
    examples=(("dmods", "the modules"), ("dmods -l", "what each command does")),
)
