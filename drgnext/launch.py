"""Runs the words behind `drgn -c DUMP NAME`, or behind `%NAME` at the prompt."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional

from dmods.base.raw_names import shell_line
from dmods.cli import mdb_shell, pipeline
from dmods.cli.drgn_starter import BTF, MDB, SYMBOLS
from dmods.cli.frontend import DEBUGINFOD, EXE, SYSROOT, Asked, collect_little, guard, guard_program, safe_output
from dmods.command import KERNEL, USERLAND, Command, command_names, find_command
from dmods.errors import OutputError, UserError
from dmods.output.next_command import IN_SHELL, NAME, typed_as
from dmods.output.render import render
from dmods.output.stdout import checked_stdout
from drgnext import session
from drgnext.dump_path import dump_path

if TYPE_CHECKING:
    from drgn import Program

WHO = f"this drgn (Python {sys.version_info[0]}.{sys.version_info[1]}, {sys.executable})"


def main(name: str, prog: Program) -> int:
    """Run a launcher's command on drgn's command line, and return the exit status."""
    collect_little()
    safe_output()
    typed_as(lambda: os.environ.get(IN_SHELL) or _in_shell(name))
    return guard_program(lambda: _run(name, prog, sys.argv[1:], {}), WHO, _asked(name, prog, sys.argv[1:]))


def at_prompt(name: str, prog: Program, words: Sequence[str], variables: Mapping[str, Any]) -> None:
    """Run a command at drgn's prompt.

    `variables` are the prompt's own: addresses may be expressions of them. BrokenPipeError goes through, because drgn
    knows whose pipe it was.
    """

    def work() -> int:
        try:
            return _run(name, prog, words, variables)
        except SystemExit:  # argparse has printed the --help that was asked for
            return 0

    typed_as(lambda: f"%{NAME}")
    try:
        with checked_stdout():
            guard(work, WHO, _asked(name, prog, words))
    except OutputError as error:  # `%NAME > FILE` on a full disk
        print(f"dmods: {error}", file=sys.stderr)


def _in_shell(name: str) -> str:
    """Return how drgn's command line is typed for another command: with all that stood before this one's name."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().decode(errors="surrogateescape").split("\0")
    launchers = [number for number, word in enumerate(words) if os.path.basename(word) == name]
    starters = [number for number, word in enumerate(words) if os.path.basename(word) == "drgn"]
    if not launchers or not starters:
        return NAME
    before = words[starters[0] + 1 : launchers[0]]
    folder = words[launchers[0]][: -len(name)]
    return f"{shell_line(['drgn', *before])} {shell_line([folder]) if folder else ''}{NAME}"


def _asked(name: str, prog: Program, words: Sequence[str]) -> Asked:
    return Asked(name, dump_path(prog), "--json" in words)


def command_for(name: str, prog: Program) -> Command:
    """Return the command of that name for what drgn has open. Raises UsageError."""
    return find_command(name, KERNEL if session.is_kernel(prog) else USERLAND)


def parser(command: Command, prog: Program) -> argparse.ArgumentParser:
    """Return the command's parser, with the options that name the files of a process or of a kernel."""
    extra = (SYMBOLS, BTF) if session.is_kernel(prog) else (EXE, SYSROOT, DEBUGINFOD)
    return command.parser(after=extra)


def _run(name: str, prog: Program, words: Sequence[str], variables: Mapping[str, Any]) -> int:
    if name == MDB:
        return _run_mdb(prog, words, variables)
    command = command_for(name, prog)
    args = parser(command, prog).parse_args(words)
    subject = _subject(command, prog, args, variables)
    with session.faults(subject, name):
        addresses = pipeline.from_stdin(command, args, sys.stdin)
        if addresses is not None:
            return pipeline.for_each(command, subject, args, addresses, out=sys.stdout, err=sys.stderr)
        report = command.run(subject, args)
        told: set[str] = getattr(subject, "told", set())  # a kernel's
        render(report, command.name, subject, args.json, sys.stdout, sys.stderr, known=told)
        told.update(getattr(subject, "once", ()) if not args.json else ())
    return report.status


def _subject(
    command: Command, prog: Program, args: argparse.Namespace, variables: Mapping[str, Any]
) -> Optional[session.Subject]:
    """Return what the command works on: a kernel or a process; None where it needs nothing."""
    if command.requires:
        return session.subject(prog, command, args, variables)
    if command.optional and not session.is_kernel(prog):
        with suppress(UserError):  # nothing is loaded
            return session.subject(prog, command, args, variables)
    return None


def _run_mdb(prog: Program, words: Sequence[str], variables: Mapping[str, Any]) -> int:
    front = _Drgn(prog, variables)
    with session.faults(session.kernel(prog) if session.is_kernel(prog) else None, MDB):
        if words:
            return pipeline.run(" ".join(words), command_names(), front)
        return mdb_shell.run_lines(sys.stdin, front, WHO)


class _Drgn:
    """Implements dmods.cli.pipeline.FrontEnd."""

    def __init__(self, prog: Program, variables: Mapping[str, Any]) -> None:
        self._prog = prog
        self._variables = variables
        self._args = argparse.Namespace(exe=None, sysroot=None)
        self.out, self.err = sys.stdout, sys.stderr
        self.width: Optional[int] = None

    def find(self, name: str) -> Command:
        return command_for(name, self._prog)

    def parse(self, command: Command, text: str, more: Sequence[str]) -> argparse.Namespace:
        self._args = parser(command, self._prog).parse_args([*mdb_shell.split(text), *more])
        return self._args

    def target(self, command: Command) -> Optional[session.Subject]:
        return _subject(command, self._prog, self._args, self._variables)
