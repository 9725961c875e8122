"""A command is data plus ``run(target, args) -> Report``. One file per command, found by its name: in
``dmods/commands`` those for processes, in ``drgnext/commands`` those for kernels.

``--help``, gdb's ``help NAME``, drgn's help and docs/COMMANDS.md are all made from the same :class:`Command`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmods.errors import UsageError
from dmods.report import Report

# The first argument is a dmods.target.Target, or for a kernel's command a drgnext.kernel.target.Kernel; None for a
# command that requires nothing.
Run = Callable[[Any, argparse.Namespace], Report]

USERLAND, KERNEL = "userland", "kernel"
# Looked through by name: nothing in dmods imports a front end. None of the commands imports a debugger before it runs.
_ROOMS = {USERLAND: "dmods.commands", KERNEL: "drgnext.commands"}


class Argument:
    """One argument, in argparse's own words: ``Argument("-d", "--details", action="store_true", help="...")``."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.names = names
        self.options = options


@dataclass(frozen=True)
class Command:
    """``name`` is what the user types and the name of its file; ``summary`` is one line; ``requires`` says what the
    target must be ("userland", "kernel", "audit"; nothing: anything, or none; ``optional``: a process, if there is
    one); ``examples`` are (command line, what it shows) pairs."""

    name: str
    summary: str
    run: Run
    description: str = ""
    arguments: Sequence[Argument] = ()
    requires: Sequence[str] = ("userland",)
    optional: bool = False
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


def positive(text: str) -> int:
    """The ``type`` of an argument that counts something."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is no count: give 1 or more")
    return number


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        missing = message.partition("the following arguments are required: ")[2]
        what = f"{self.prog.split()[-1]}: {f'{missing} is missing' if missing else message}"
        raise UsageError(what, " ".join([*self.format_usage().split(), " (-h explains)"]))


def modules() -> list[tuple[str, str, str]]:
    """(name, side, module) of every command, without importing any. A name may be there twice: once on each side."""
    found = []
    for side, room in _ROOMS.items():
        folder = importlib.import_module(room).__path__
        found += [(one.name, side, f"{room}.{one.name}") for one in pkgutil.iter_modules(folder) if one.name[0] != "_"]
    return sorted(found)


def names() -> list[str]:
    """What can be typed."""
    return sorted({name for name, _side, _module in modules()})


def find(name: str, side: str = USERLAND) -> Command:
    """The command of that name for processes (or kernels); where only the other side has one, that one.

    Raises UsageError for an unknown name.
    """
    found = {where: module for known, where, module in modules() if known == name}
    if not found:
        alike = difflib.get_close_matches(name.lower(), names(), 1)
        meant = f"did you mean {alike[0]}? " if alike else ""
        raise UsageError(f"there is no command {name!r}", f"{meant}`dmods -l` lists the commands")
    return load(found.get(side) or next(iter(found.values())))


def load(module: str) -> Command:
    command = importlib.import_module(module).COMMAND
    assert isinstance(command, Command)
    return command
