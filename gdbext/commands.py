"""Every dmods command as ``mdb NAME``, and as ``NAME`` where gdb (or another extension of it) has no such command."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from typing import Any, Optional

import gdb

import dmods.command
from dmods.command import USERLAND, Argument, Command
from dmods.completion import candidates, choices
from dmods.errors import UsageError, UserError
from gdbext import output, session, sysbp
from gdbext.bridge import bridge

_PREFIX = "mdb"
_registered: list[gdb.Command] = []


def registered() -> bool:
    return bool(_registered)


def register() -> None:
    taken = _taken()
    prefix = type("Mdb", (gdb.Command,), {"__doc__": _PREFIX_HELP})
    _registered.append(prefix(_PREFIX, gdb.COMMAND_DATA, gdb.COMPLETE_COMMAND, True))
    here = {name for name, side, _module in dmods.command.modules() if side == USERLAND}
    for name in dmods.command.names():
        for shown in (f"{_PREFIX} {name}", name):
            if shown in taken:
                continue
            # The other side's commands are not even loaded: that takes longer than all of ours.
            made = _GdbCommand(shown, dmods.command.find(name)) if name in here else _ForDrgn(shown, name)
            _registered.append(made)
    for shown in (f"{_PREFIX} {sysbp.NAME}", sysbp.NAME):
        if shown not in taken:
            _registered.append(sysbp.SysBp(shown))


_PREFIX_HELP = """mdb's memory commands.
Each is also there without the prefix where gdb has no command of its own of that name."""


def _taken() -> set[str]:
    """gdb's commands of now, aliases and other extensions' too: `complete` of nothing lists them, up to a limit."""
    limit = gdb.parameter("max-completions")
    gdb.execute("set max-completions unlimited", to_string=True)
    try:
        return set(gdb.execute("complete ", to_string=True).splitlines())
    finally:
        gdb.execute(f"set max-completions {'unlimited' if limit in (None, -1) else limit}", to_string=True)


def help_text(command: Command) -> str:
    """What gdb's `help NAME` shows. Its first line is also what `help mdb` lists and `apropos` finds."""
    parser = command.parser()
    usage = parser.format_usage().partition(": ")[2].strip()
    rest = parser.format_help().partition("\n\n")[2].partition(command.summary)[2].strip()
    return f"{command.summary.rstrip('.')}.\nUsage: {usage}\n\n{rest}"


class _GdbCommand(gdb.Command):
    def __init__(self, name: str, command: Command) -> None:
        self.command = command
        self.__doc__ = help_text(command)
        super().__init__(name, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        bridge(lambda: _run(self.command, argument))

    def complete(self, text: str, word: Optional[str]) -> Any:
        return complete(self.command, text, word)


class _ForDrgn(gdb.Command):
    """A command for kernel dumps, which gdb does not read."""

    def __init__(self, shown: str, name: str) -> None:
        self._error = UserError(f"{name} is for kernel dumps, which gdb does not read", f"drgn -c vmcore {name}")
        self.__doc__ = f"(for kernel dumps, in drgn.)\n\n{self._error.how}"
        super().__init__(shown, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        bridge(self._refuse)

    def _refuse(self) -> None:
        raise self._error


def _run(command: Command, argument: str) -> None:
    from dmods.render import render

    try:
        arguments = parse(command, argument)
    except SystemExit:  # argparse has printed the --help that was asked for
        return
    target = session.current_target() if command.requires else None
    if command.optional:
        with suppress(UserError):  # nothing is loaded
            target = session.current_target()
    with redirect_stderr(output.stderr()) as stderr:
        report = command.run(target, arguments)
        render(report, command.name, target, arguments.json, sys.stdout, stderr)
    gdb.set_convenience_variable("mdb_status", report.status)


def parse(command: Command, argument: str) -> argparse.Namespace:
    """The arguments as gdb splits them. Where the only place is for an expression, that may hold spaces
    (`whatis p + 4`)."""
    words = gdb.string_to_argv(argument)
    try:
        return command.parser().parse_args(words)
    except UsageError:
        places = [each for each in command.arguments if not each.names[0].startswith("-")]
        if len(places) != 1 or places[0].options.get("nargs", "?") != "?" or "choices" in places[0].options:
            raise
        place = places[0]
        wide = Argument(*place.names, **{**place.options, "nargs": "*"})
        arguments = [wide if each is place else each for each in command.arguments]
        try:
            found = replace(command, arguments=arguments).parser().parse_args(words)
        except UsageError:
            found = None
        if found is None or len(getattr(found, place.names[0])) < 2:
            raise
        setattr(found, place.names[0], " ".join(getattr(found, place.names[0])))
        return found


def complete(command: Command, text: str, word: Optional[str]) -> Any:
    """Options after a dash, choices where the command has them, else what gdb knows of expressions.

    gdb asks twice: first with ``word`` None, to learn what kind of thing is being completed.
    """
    last = text.rpartition(" ")[2]
    if not last.startswith("-") and not choices(command):
        return gdb.COMPLETE_EXPRESSION
    if word is None:
        return None
    # gdb's words end at a dash, ours at a space: give back only what follows the part that gdb keeps.
    kept = len(last) - len(word)
    return [each[kept:] for each in candidates(command, last)]
