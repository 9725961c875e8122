"""From the words behind `drgn -c DUMP NAME` (or `%NAME` at the prompt) to the answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dmods.command import KERNEL, USERLAND, Command, find
from dmods.errors import UserError
from dmods.frontend import EXE, SYSROOT, guard, guard_program, safe_output
from dmods.render import render
from drgnext import session

WHO = f"this drgn (Python {sys.version_info[0]}.{sys.version_info[1]}, {sys.executable})"


def main(name: str, prog: Any) -> int:
    """The launcher's: the exit status."""
    safe_output()
    return guard_program(lambda: _run(name, prog, sys.argv[1:], {}), WHO)


def at_prompt(name: str, prog: Any, words: Sequence[str], variables: Mapping[str, Any]) -> None:
    """``variables`` are the prompt's own: addresses may be expressions of them. BrokenPipeError goes through:
    drgn knows whose pipe it was."""

    def work() -> int:
        try:
            return _run(name, prog, words, variables)
        except SystemExit:  # argparse has printed the --help that was asked for
            return 0

    guard(work, WHO)


def command_for(name: str, prog: Any) -> Command:
    return find(name, KERNEL if session.is_kernel(prog) else USERLAND)


def parser(command: Command, prog: Any) -> argparse.ArgumentParser:
    """A core of a process may be of another machine; a kernel's files are drgn's business."""
    extra = () if session.is_kernel(prog) else (EXE, SYSROOT)
    return command.parser(after=extra)


def _run(name: str, prog: Any, words: Sequence[str], variables: Mapping[str, Any]) -> int:
    command = command_for(name, prog)
    args = parser(command, prog).parse_args(words)
    subject = session.subject(prog, command, args, variables) if command.requires else None
    if command.optional and not session.is_kernel(prog):
        with suppress(UserError):  # nothing is loaded
            subject = session.subject(prog, command, args, variables)
    with session.faults(subject, name):
        report = command.run(subject, args)
        render(report, command.name, subject, args.json, sys.stdout, sys.stderr)
    return report.status
