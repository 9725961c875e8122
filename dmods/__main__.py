"""``dmods NAME core [args]``: every userland command on a bare core, where no debugger is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Optional

from dmods import command as commands
from dmods.command import KERNEL, Argument, Command
from dmods.errors import KernelDumpError, UsageError, UserError
from dmods.frontend import EXE, SYSROOT, check_sysroot, guard_program, safe_output
from dmods.render import render

if TYPE_CHECKING:
    from dmods.corefile import CoreFile

# Words of the shell's alone: each a module with ``run(words) -> exit status``, SUMMARY and USAGE.
ALONE = {
    "run": "dmods.run",
    "gdb": "dmods.debuggers",
    "link": "dmods.link",
    "complete": "dmods.completion",
}
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
    if words[0] in ("-l", "--long"):
        words = ["dmods", *words]
    name, *rest = words
    if name in ALONE:
        status: int = import_module(ALONE[name]).run(rest)
        return status
    if name.startswith("-") or (name not in commands.names() and os.path.exists(name)):
        given = [word for word in words if os.path.isfile(word)]
        example = f"for example: dmods findleaks {given[-1]}   (`dmods` lists the commands)" if given else USAGE
        raise UsageError(f"the command comes first, not {name}", example)
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
        args = _arguments(command, words)
        try:
            core = _target(args)
        except KernelDumpError:
            return _in_drgn(command.name, args.core, words)
        raise UserError(
            f"{core.path} is the core of a process, and {command.name} is for kernels",
            "for processes: findleaks, whatis, maps, ... (`dmods` lists all)",
        )
    try:
        args = _arguments(command, words)
        target = _target(args) if args.core is not None else None
        # A command that requires nothing of its target does not look at it.
        report = command.run(target, args)
    except (KernelDumpError, UsageError):
        dump = _kernel_dump(command.name, words)
        if dump is None:
            raise
        return _in_drgn(command.name, dump, words)
    safe_output()
    render(report, command.name, target, args.json, sys.stdout, sys.stderr)
    return report.status


def _arguments(command: Command, words: Sequence[str]) -> argparse.Namespace:
    core = Argument("core", help="the core file", **({} if command.requires else {"nargs": "?"}))
    extra = () if KERNEL in command.requires else (EXE, SYSROOT)
    parser = command.parser(before=[core], after=extra, prog=f"dmods {command.name}")
    # Intermixed: in `findleaks core -d main` plain argparse gives the optional address up once it has seen the core.
    return parser.parse_intermixed_args(words)


def _kernel_dump(name: str, words: Sequence[str]) -> Optional[str]:
    """The kernel's dump in a command line that is none for processes, if kernels have a command of that name, too."""
    command = commands.find(name, KERNEL)
    if KERNEL not in command.requires:
        return None
    try:
        args = _arguments(command, words)
        _target(args)
    except KernelDumpError:
        dump: str = args.core
        return dump
    except UserError:
        pass
    return None


def _in_drgn(name: str, dump: str, words: Sequence[str]) -> int:
    """Only drgn knows the types of a kernel."""
    from dmods import debuggers

    rest = list(words)
    rest.remove(dump)
    return debuggers.drgn(dump, name, rest)


def _target(args: argparse.Namespace) -> CoreFile:
    from dmods.corefile import CoreFile

    if not hasattr(args, "exe"):  # a kernel's command
        return CoreFile(args.core)
    check_sysroot(args.sysroot)
    return CoreFile(args.core, args.exe, args.sysroot)


def _overview() -> str:
    """Every name that can be typed, by what it needs."""
    found = [commands.load(module) for _name, _side, module in commands.modules()]
    alone = {name: import_module(module) for name, module in ALONE.items()}
    width = max(len(name) for name in [*alone, *(command.name for command in found)])

    def line(name: str, summary: str) -> str:
        return f"  {name:<{width}}  {summary}"

    processes = [line(one.name, one.summary) for one in found if KERNEL not in one.requires and one.requires]
    kernels = [line(one.name, one.summary) for one in found if KERNEL in one.requires]
    others = [line(one.name, one.summary) for one in found if not one.requires]
    shell = [each for name, one in alone.items() for each in (line(name, one.SUMMARY), line("", _bare(one.USAGE)))]
    parts = {
        "A process's core:": processes,
        "A kernel's dump (vmcore), through drgn:": kernels,
        "Without a core:": [*others, *shell],
    }
    return "\n".join([USAGE, *(text for title, lines in parts.items() for text in ("", title, *lines))])


def _bare(usage: str) -> str:
    return usage.partition(": ")[2]


if __name__ == "__main__":
    sys.exit(main())
