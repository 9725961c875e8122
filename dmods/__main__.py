"""``dmods NAME core [args]``: every userland command on a bare core, where no debugger is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from dmods import command as commands
from dmods.command import KERNEL, Argument, Command
from dmods.errors import UsageError, UserError
from dmods.frontend import EXE, SYSROOT, check_sysroot, guard_program, safe_output
from dmods.render import render

if TYPE_CHECKING:
    from dmods.corefile import CoreFile

USAGE = "usage: dmods NAME core [args]   (`dmods` lists the commands, `dmods help NAME` explains one)"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit status: 0 done, 1 cannot, 2 usage, 130 interrupted; a command may have others."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guard_program(lambda: _run(words), f"this Python ({sys.executable})")


def _run(words: list[str]) -> int:
    words, options = _options_first(words)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        from dmods._engine import __version__

        print(f"dmods {__version__}")
        return 0
    if words[0] == "help":
        if len(words) == 1:
            print(_overview())
            return 0
        words = [words[1], "--help"]
    name, *rest = words
    if name == "run":
        from dmods import run

        return run.run(rest)
    if name.startswith("-") or (name not in commands.names() and os.path.exists(name)):
        raise UsageError(f"the command comes first, not {name}", USAGE)
    return _command(commands.find(name), [*rest, *options])


def _options_first(words: list[str]) -> tuple[list[str], list[str]]:
    """(the words from the first that is not one of our own options, those options): they may stand before the name
    too."""
    count = 0
    while count < len(words) and words[count].split("=")[0] in ("--exe", "--sysroot"):
        count += 1 if "=" in words[count] else 2
    return words[count:], words[:count]


def _command(command: Command, words: Sequence[str]) -> int:
    if KERNEL in command.requires:
        raise UserError(
            f"{command.name} is for kernel dumps, which need drgn's type system", f"drgn -c vmcore {command.name}"
        )
    bare = not command.requires
    core = Argument("core", help="the core file", **({"nargs": "?"} if bare else {}))
    parser = command.parser(before=[core], after=[EXE, SYSROOT], prog=f"dmods {command.name}")
    # Intermixed: in `findleaks core -d main` plain argparse gives the optional address up once it has seen the core.
    args = parser.parse_intermixed_args(words)
    target = _target(args) if args.core is not None else None
    # A command that requires nothing of its target does not look at it.
    report = command.run(target, args)
    safe_output()
    render(report, command.name, target, args.json, sys.stdout, sys.stderr)
    return report.status


def _target(args: argparse.Namespace) -> CoreFile:
    from dmods.corefile import CoreFile

    check_sysroot(args.sysroot)
    return CoreFile(args.core, args.exe, args.sysroot)


def _overview() -> str:
    from dmods import run

    found = [commands.find(name) for name in commands.names()]
    width = max((len(command.name) for command in found), default=0)
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in found]
    return "\n".join([USAGE, "", *lines, "", f"  {'run':<{width}}  {run.SUMMARY}", f"  {'':<{width}}  {run.USAGE}"])


if __name__ == "__main__":
    sys.exit(main())
