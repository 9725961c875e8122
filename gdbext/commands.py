"""Register every dmods command as ``mdb NAME``, and as ``NAME`` where gdb and its extensions have no such command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from typing import Any, Optional, TextIO

import gdb

from dmods.base.dataclass import replace
from dmods.cli import mdb
from dmods.cli.completion import candidates, choices
from dmods.cli.frontend import Asked
from dmods.command import USERLAND, Argument, Command, command_modules, command_names, find_command
from dmods.errors import UsageError, UserError
from dmods.output.streaming import target_name
from gdbext import batch, output, sysbp
from gdbext.bridge import bridge
from gdbext.help_texts import help_text, known_texts

_PREFIX = "mdb"
_registered: list[gdb.Command] = []


def registered() -> bool:
    """Return whether this gdb has the commands already."""
    return bool(_registered)


def register() -> None:
    """Register every command under both of its names. A command that gdb has already stays as it is."""
    taken = _taken()
    _registered.append(_Mdb(_PREFIX, gdb.COMMAND_DATA, gdb.COMPLETE_COMMAND, True))
    here = {name for name, side, _module in command_modules() if side == USERLAND}
    texts = known_texts()
    for name in command_names():
        missing = [shown for shown in (f"{_PREFIX} {name}", name) if shown not in taken]
        if name not in here:
            _registered.extend(_ForDrgn(shown, name) for shown in missing)
        elif missing:
            text = texts.get(name) or help_text(find_command(name))
            _registered.extend(_GdbCommand(shown, name, text) for shown in missing)
    for shown in (f"{_PREFIX} {sysbp.NAME}", sysbp.NAME):
        if shown not in taken:
            _registered.append(sysbp.SysBp(shown))


def _taken() -> set[str]:
    """Return the names of gdb's commands at this moment, with aliases and the commands of other extensions."""
    # `complete` without an argument lists all commands, up to a limit.
    limit = gdb.parameter("max-completions")
    gdb.execute("set max-completions unlimited", to_string=True)
    try:
        return set(gdb.execute("complete ", to_string=True).splitlines())
    finally:
        gdb.execute(f"set max-completions {'unlimited' if limit in (None, -1) else limit}", to_string=True)


class _Mdb(gdb.Command):
    """mdb's memory commands.
    Usage: mdb NAME [ARGUMENTS]
           mdb ADDR::NAME [ARGUMENTS]
           mdb ::walk NAME | ::NAME

    A command is there without the prefix too, where gdb has no command of that name.
    mdb's own language works behind the prefix: a pipe hands addresses to the next command.
    To pipe to the shell: pipe mdb NAME | less. With both: pipe -d @ mdb ::walk leak | ::whatis @ less"""

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        if argument.strip():
            _bridged_line(argument)
        else:
            gdb.execute(f"help {_PREFIX}")


class _GdbCommand(gdb.Command):
    """A command for processes. Its module is imported when the user types its name, or completes its arguments."""

    def __init__(self, shown: str, name: str, text: str) -> None:
        self.name = name
        self.__doc__ = text
        super().__init__(shown, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        # gdb has removed the name from `walk leak | bufctl`, and from `maps::whatis` (a symbol called maps).
        if argument.startswith("::") or mdb.has_pipe(argument, command_names()):
            between = "" if argument.startswith("::") else " "
            _bridged_line(f"{self.name}{between}{argument}")
        else:
            asked = Asked(self.name, json="--json" in argument.split())
            bridge(lambda: _run(find_command(self.name), argument, asked), asked)

    def complete(self, text: str, word: Optional[str]) -> Any:
        return complete(find_command(self.name), text, word)


class _ForDrgn(gdb.Command):
    """A command for kernel dumps, which gdb does not read."""

    def __init__(self, shown: str, name: str) -> None:
        self._error = _for_kernels(name)
        self.__doc__ = f"(for kernel dumps, in drgn.)\n\n{self._error.how}"
        super().__init__(shown, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        self.dont_repeat()
        bridge(self._refuse)

    def _refuse(self) -> None:
        raise self._error


def _for_kernels(name: str) -> UserError:
    return UserError(f"{name} is for kernel dumps, which gdb does not read", f"drgn -c vmcore {name}")


class _Gdb:
    """The front end for gdb: implements dmods.cli.pipeline.FrontEnd."""

    def __init__(self, err: TextIO) -> None:
        self.out: TextIO = sys.stdout
        self.err = err
        self.width: Optional[int] = output.width()

    def find(self, name: str) -> Command:
        command = find_command(name)
        if command.requires and USERLAND not in command.requires:
            raise _for_kernels(name)
        return command

    def parse(self, command: Command, text: str, more: Sequence[str]) -> argparse.Namespace:
        return parse(command, text, more)

    def target(self, command: Command) -> Any:
        from gdbext import session  # what reads a core is imported when a command asks for it

        if command.optional:
            with suppress(UserError):  # nothing is loaded
                return session.current_target()
        return session.current_target() if command.requires else None


def _bridged_line(line: str) -> None:
    asked = Asked("mdb", json="--json" in line.split())
    bridge(lambda: _run_line(line), asked)


def _run_line(line: str) -> None:
    """Run a line of mdb's language."""
    from dmods.cli import pipeline

    names = command_names()
    first = mdb.parse(line, [*names, sysbp.NAME])[0]
    if first.name == sysbp.NAME:
        gdb.execute(f"{_PREFIX} {sysbp.NAME} {first.arguments}")
        return
    with redirect_stderr(output.stderr()) as stderr:
        try:
            _ended(pipeline.run(line, names, _Gdb(stderr)))
        except SystemExit:  # argparse has printed the --help that was asked for
            return


def _run(command: Command, argument: str, asked: Asked) -> None:
    from dmods.output.render import render

    try:
        arguments = parse(command, argument)
    except SystemExit:  # argparse has printed the --help that was asked for
        return
    with redirect_stderr(output.stderr()) as stderr:
        target = _Gdb(stderr).target(command)
        asked.target = target_name(target)
        report = command.run(target, arguments)
        render(report, command.name, target, arguments.json, sys.stdout, stderr, output.width())
    _ended(report.status)


def _ended(status: int) -> None:
    gdb.set_convenience_variable("mdb_status", status)
    batch.keep_status(status)
    output.check_stdout()


def parse(command: Command, argument: str, more: Sequence[str] = ()) -> argparse.Namespace:
    """Return the arguments as gdb splits them, followed by `more`.

    An expression may hold spaces where the command takes nothing else (`whatis p + 4`).
    """
    words = [*gdb.string_to_argv(argument), *more]
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
    """Return completions: options after a dash, choices where the command has them, else gdb's for expressions.

    gdb asks twice: first with `word` None, to learn what kind of thing is being completed.
    """
    last = text.rpartition(" ")[2]
    if not last.startswith("-") and not choices(command):
        return gdb.COMPLETE_EXPRESSION
    if word is None:
        return None
    # gdb's words end at a dash, ours at a space. So return only what follows the part that gdb keeps.
    kept = len(last) - len(word)
    return [each[kept:] for each in candidates(command, last)]
