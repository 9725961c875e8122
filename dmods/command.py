"""A command is data plus ``run(target, args) -> Report``. One file in ``dmods/commands`` per command, found by its
name.

``--help``, gdb's ``help NAME``, drgn's help and docs/COMMANDS.md are all made from the same :class:`Command`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmods.errors import UsageError
from dmods.report import Report
from dmods.target import Target

Run = Callable[[Target, argparse.Namespace], Report]


class Argument:
    """One argument, in argparse's own words: ``Argument("-d", "--details", action="store_true", help="...")``."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.names = names
        self.options = options


@dataclass(frozen=True)
class Command:
    """``name`` is what the user types and the name of its file; ``summary`` is one line; ``requires`` says what the
    target must be ("userland", "kernel", "audit"); ``examples`` are (command line, what it shows) pairs."""

    name: str
    summary: str
    run: Run
    description: str = ""
    arguments: Sequence[Argument] = ()
    requires: Sequence[str] = ("userland",)
    examples: Sequence[tuple[str, str]] = field(default=())

    def parser(
        self, before: Sequence[Argument] = (), after: Sequence[Argument] = (), prog: str = ""
    ) -> argparse.ArgumentParser:
        """Raises UsageError instead of printing and exiting. ``before`` and ``after`` are a front end's own
        arguments."""
        parser = _Parser(
            prog=prog or self.name,
            description="\n\n".join(filter(None, (self.summary, self.description))),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="\n".join(f"  {line}\n      {shows}" for line, shows in self.examples),
        )
        for argument in (*before, *self.arguments, *after):
            parser.add_argument(*argument.names, **argument.options)
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
        return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{self.prog}: {message}", " ".join(self.format_usage().split()))


def names() -> list[str]:
    """Every command's name, without importing any of them."""
    import dmods.commands

    return sorted(module.name for module in pkgutil.iter_modules(dmods.commands.__path__) if module.name[0] != "_")


def find(name: str) -> Command:
    """Raises UsageError for an unknown name."""
    if name not in names():
        raise UsageError(f"no command {name!r}", "`dmods` lists the commands")
    command = importlib.import_module(f"dmods.commands.{name}").COMMAND
    assert isinstance(command, Command)
    return command
