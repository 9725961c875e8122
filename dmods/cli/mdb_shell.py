"""``dmods mdb CORE '::walk leak | ::bufctl_audit'``: mdb's language on a core file, where no debugger is."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Optional, TextIO

from dmods.cli import drgn_starter, pipeline
from dmods.cli.frontend import DEBUGINFOD, EXE, PROCESS, SYSROOT, check_files, guard, names_process, safe_output
from dmods.command import KERNEL, Command, Parser, command_names, find_command
from dmods.errors import KernelDumpError, UsageError, UserError

if TYPE_CHECKING:
    from dmods.corefile.target import CoreFile

SUMMARY = "run a line of mdb's language on a core or a kernel dump: ADDR::whatis, ::walk leak | ::bufctl_audit"
USAGE = "usage: dmods mdb [--exe FILE] [--sysroot DIR] CORE|-p PID ['LINE']   (without LINE: lines from standard input)"
_PROMPT = "> "


def run(words: Sequence[str]) -> int:
    """Run one line, or each line of standard input. Return the first exit status that is not 0."""
    if not words:
        raise UsageError("mdb: CORE is missing", USAGE)
    args = _parser(names_process(words)).parse_args(words)
    check_files(args)
    safe_output()
    front = Shell(args)
    try:
        front.core  # noqa: B018 (a file that is not a core is an error before any line is read)
    except KernelDumpError:
        return drgn_starter.run_command(args.core, drgn_starter.MDB, args.line)
    if args.line:
        return pipeline.run(" ".join(args.line), command_names(), front)
    return run_lines(sys.stdin, front, f"this Python ({sys.executable})")


def run_lines(lines: TextIO, front: pipeline.FrontEnd, who: str) -> int:
    """Run each line of `lines`. An error ends its line only. Return the first exit status that is not 0."""
    status = 0
    prompt = _PROMPT if lines.isatty() else ""
    while True:
        front.out.write(prompt)
        front.out.flush()
        line = lines.readline()
        if not line:
            return status
        if line.strip():
            ended = guard(partial(pipeline.run, line, command_names(), front), who)
            status = status or ended


class Shell:
    """Implements pipeline.FrontEnd."""

    def __init__(self, args: argparse.Namespace) -> None:
        """``args`` has the core, or the process, and the files of it."""
        self._args = args
        self.out, self.err = sys.stdout, sys.stderr
        self.width: Optional[int] = None

    @cached_property
    def core(self) -> CoreFile:
        """Return the core file, read once for all lines."""
        if self._args.process is not None:
            from dmods.cli.live import pictures

            return pictures(self._args)
        from dmods.corefile.target import CoreFile

        return CoreFile(self._args.core, self._args.exe, self._args.sysroot)

    def find(self, name: str) -> Command:
        """Return the command of that name."""
        return find_command(name)

    def parse(self, command: Command, text: str, more: Sequence[str]) -> argparse.Namespace:
        """Return the parsed arguments of the text, followed by `more`."""
        return command.parser().parse_intermixed_args([*split(text), *more])

    def target(self, command: Command) -> Optional[CoreFile]:
        """Return the core that the command works on. Raises UserError for a command for kernels."""
        if KERNEL in command.requires:
            raise UserError(
                f"{self._args.core or self._args.process} is the core of a process, and {command.name} is for kernels",
                "for processes: ::findleaks, ::whatis, ::maps, ... (`::dcmds` lists all)",
            )
        return self.core if command.requires or command.optional else None


def split(text: str) -> list[str]:
    """Return the words of a line as a shell splits them. A line with an open quote is split at its spaces."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _parser(of_process: bool) -> argparse.ArgumentParser:
    parser = Parser(prog="dmods mdb", description=SUMMARY)
    for argument in (EXE, SYSROOT, DEBUGINFOD, PROCESS):
        parser.add_argument(*argument.names, **argument.options)
    if of_process:
        parser.set_defaults(core=None)
    else:
        parser.add_argument("core", metavar="CORE", help="the core file, or a kernel's dump")
    parser.add_argument("line", metavar="LINE", nargs=argparse.REMAINDER, help="a line of mdb's language, in quotes")
    return parser
