"""A command is data plus ``run(target, args) -> Report``. Each command is one file, which is found by its name.

Commands for processes are in ``dmods/commands``, those for kernels in ``drgnext/commands``. ``--help``, gdb's ``help
NAME``, drgn's help and docs/COMMANDS.md are all made from the same :class:`Command`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Union

from dmods.base.dataclass import dataclass, field
from dmods.errors import UsageError
from dmods.report import Column, Report, Schema

# The first argument is a dmods.target.Target. For a kernel's command it is a drgnext.kernel.dump.target.Kernel. For a
# command that requires nothing it is None.
Run = Callable[[Any, argparse.Namespace], Report]
# A function where the declarations stand in modules that the command seldom needs.
Schemas = Union[Sequence[Schema], Callable[[], Sequence[Schema]]]
Totals = Union[Sequence[Column], Callable[[], Sequence[Column]]]

USERLAND, KERNEL = "userland", "kernel"
#: A kernel's command that also works, with less to say, where the debug information of the kernel is missing.
BARE_KERNEL = "kernel without debug information"
# Searched by name, because nothing in dmods imports a front end. No command imports a debugger before it runs.
_PACKAGES = {USERLAND: "dmods.commands", KERNEL: "drgnext.commands"}


_UNITS = "KMGT"
_USUAL_COLUMNS = 80
_LONGEST = 15  # digits of a size


class Argument:
    """An argument, with argparse's parameters: ``Argument("-d", "--details", action="store_true", help="...")``."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.names = names
        self.options = options

    @property
    def help(self) -> str:
        """Return what the argument means, with its default where the text has a place for it."""
        return str(self.options.get("help", "")) % {"default": self.options.get("default")}


@dataclass(frozen=True)
class Command:
    """A command.

    `name` is what the user types, and the name of the file. `summary` is one line. `requires` says what the target must
    be: "userland", "kernel", "audit"; BARE_KERNEL beside "kernel" asks for less.
    Without any it takes no target, or with `optional` a process if there is one.
    `examples` are pairs of a command line and what it shows. `compares`: the command compares its target with older
    cores. They are its argument `base`. In the shell the last of the files is the target. `live`: in the shell it takes
    the number of a live process, too, as its argument `pid`.
    `tables` and `totals` declare what JSON has; see `schemas` and `sums`. `verdict`: the command checks something.
    """

    name: str
    summary: str
    run: Run
    description: str = ""
    arguments: Sequence[Argument] = ()
    requires: Sequence[str] = ("userland",)
    optional: bool = False
    compares: bool = False
    live: bool = False
    tables: Schemas = ()
    totals: Totals = ()
    verdict: bool = False
    examples: Sequence[tuple[str, str]] = field(default=())

    def schemas(self) -> Sequence[Schema]:
        """Return the tables that JSON may have. Two have one name where the arguments decide on the columns."""
        return self.tables() if callable(self.tables) else self.tables

    def sums(self) -> Sequence[Column]:
        """Return the totals that JSON may have."""
        return self.totals() if callable(self.totals) else self.totals

    def statuses(self) -> dict[int, str]:
        """Return the exit statuses of the command, with their meanings."""
        found = {0: "done", 1: "something cannot be done", 2: "wrong command line"}
        fails = next((name for each in self.arguments for name in each.names if name[2:].startswith("fail-on-")), None)
        if fails is not None:
            found[3] = f"something was found ({fails})"
        if self.verdict:
            found[4] = "no verdict is possible"
        return found

    def parser(
        self, before: Sequence[Argument] = (), after: Sequence[Argument] = (), prog: str = ""
    ) -> argparse.ArgumentParser:
        """Return the parser of the command's arguments. `before` and `after` are a front end's own arguments."""
        parser = Parser(
            prog=prog or self.name,
            description="\n\n".join(filter(None, (self.summary, self.description))),
            formatter_class=HelpFormatter,
            epilog="\n".join(f"  {line}\n      {shows}" for line, shows in self.examples),
        )
        for argument in (*before, *self.arguments, *after):
            parser.add_argument(*argument.names, **argument.options)
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
        return parser


def size(text: str) -> int:
    """Return the bytes that `text` means: "4096", "16M"."""
    number, unit = (text[:-1], text[-1].upper()) if text and text[-1].upper() in _UNITS else (text, "")
    if not number.isdecimal() or len(number) > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not a size: give bytes, or a number with K, M, G or T, as in 16M")
    return int(number) << 10 * (_UNITS.index(unit) + 1 if unit else 0)


def positive(text: str) -> int:
    """Return the number in `text`, which must be positive. Arguments that count something have this ``type``."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a count: give 1 or more")
    return number


def seconds(text: str) -> float:
    """Return the time in `text`. Arguments that wait or end after a time have this ``type``."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e7:
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds, as in 60")
    return number


def _hang(line: str) -> int:
    """Return where the next line of an indented one begins: below the second column of a list, or further in."""
    column = re.match(r" *\S+(?: \S+)* {2,}", line)
    return column.end() if column is not None else len(line) - len(line.lstrip()) + 4


def _columns() -> int:
    """Return the width that shutil.get_terminal_size() gives: COLUMNS, else that of the terminal, else 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size().columns or _USUAL_COLUMNS
    except OSError:  # no terminal
        return _USUAL_COLUMNS


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fill paragraphs to the width of the terminal. Indented lines stay lines of their own."""

    def __init__(self, prog: str) -> None:
        # argparse makes a formatter for each argument that is added, and imports shutil (4 ms) to ask for the width.
        super().__init__(prog, width=_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # only help needs it, and to import it takes 3 ms

        filled: list[str] = []
        for indented, lines in groupby(text.splitlines(), key=lambda line: line[:1] in ("", " ")):
            for line in lines if indented else [" ".join(lines)]:
                margin = indent + " " * (len(line) - len(line.lstrip()))
                wrapper = textwrap.TextWrapper(
                    width,
                    initial_indent=margin,
                    subsequent_indent=" " * _hang(line) if indented else margin,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                # The author of a list places the text within its lines.
                wrapper.fix_sentence_endings = wrapper.replace_whitespace = False
                filled += [margin + line.strip()] if len(line) <= width else wrapper.wrap(line.strip()) or [""]
        return "\n".join(filled)


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of printing and exiting."""

    def error(self, message: str) -> Any:
        """Raise UsageError with the message and the usage."""
        missing = message.partition("the following arguments are required: ")[2]
        what = f"{self.prog.split()[-1]}: {f'{missing} is missing' if missing else message}"
        raise UsageError(what, " ".join([*self.format_usage().split(), " (-h explains)"]))


def command_modules() -> list[tuple[str, str, str]]:
    """Return (name, side, module) of every command, without importing any. Both sides may have a command of a name."""
    found = []
    for side, package in _PACKAGES.items():
        folder = importlib.import_module(package).__path__
        found += [(name, side, f"{package}.{name}") for name in modules_in(folder)]
    return sorted(found)


def modules_in(folder: Iterable[str]) -> list[str]:
    """Return the names of the public modules in a package's folder. pkgutil does so, but imports inspect: 13 ms."""
    names = {name for path in folder for name in os.listdir(path) if name.endswith(".py") and name[0] != "_"}
    return sorted(name[:-3] for name in names)


def command_names() -> list[str]:
    """Return the names that a user can type."""
    return sorted({name for name, _side, _module in command_modules()})


def find_command(name: str, side: str = USERLAND) -> Command:
    """Return the command of that name for one side. Where only the other side has one, return that.

    Raises UsageError for an unknown name.
    """
    found = {where: module for known, where, module in command_modules() if known == name}
    if not found:
        import difflib  # only a name that is not known needs it

        alike = difflib.get_close_matches(name.lower(), command_names(), 1)
        meant = f"did you mean {alike[0]}? " if alike else ""
        raise UsageError(f"there is no command {name!r}", f"{meant}`dmods -l` lists the commands")
    return load_command(found.get(side) or next(iter(found.values())))


def load_command(module: str) -> Command:
    """Return the command that a module defines."""
    command = importlib.import_module(module).COMMAND
    assert isinstance(command, Command)
    return command
