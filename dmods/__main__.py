"""``dmods NAME core [args]``: every command on a core file, without a debugger."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Optional

from dmods.cli import pipeline
from dmods.cli.frontend import (
    DEBUGINFOD,
    EXE,
    MAX_SIZE,
    PROCESS,
    SYSROOT,
    Asked,
    check_files,
    collect_little,
    guard_program,
    limit_size,
    live_process,
    names_process,
    safe_output,
    with_named_cores,
)
from dmods.cli.verbs import MANY_DUMPS, SHELL_VERBS, TAKE_DUMPS, about_many_dumps
from dmods.command import KERNEL, Argument, Command, command_modules, command_names, find_command, load_command
from dmods.errors import KernelDumpError, UsageError, UserError
from dmods.output.layout import paragraph, terminal_width
from dmods.output.next_command import in_shell, typed_as
from dmods.output.render import render

if TYPE_CHECKING:
    from dmods.corefile.target import CoreFile

USAGE = "usage: dmods NAME core [args]   (or -p PID; `dmods` lists the commands, `dmods help NAME` explains one)"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command line and return the exit status: 0 done, 1 cannot, 2 wrong usage, 130 interrupted.

    A command may have other statuses.
    """
    if arguments is None:
        collect_little()
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = Asked()
    return guard_program(lambda: _run(words, asked), f"this Python ({sys.executable})", asked)


def _run(words: list[str], asked: Asked) -> int:
    words, options = _options_first(words)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        from dmods._engine import __version__

        print(f"dmods {__version__}")
        return 0
    if words[0] == "help":
        if _helped(words[1:]):
            return 0
        words = [words[1], "--help"]
    if words[0] in ("-l", "--long"):
        words = ["dmods", *words]
    name, *rest = words
    if name not in SHELL_VERBS or name in TAKE_DUMPS:
        rest = with_named_cores(rest)
    verb = MANY_DUMPS if name == "triage" and about_many_dumps(rest) else SHELL_VERBS.get(name)
    if verb is not None:
        return int(import_module(verb).run(rest))
    asked.command, asked.json = name, "--json" in rest
    if name.startswith("-") or (name not in command_names() and os.path.exists(name)):
        given = [word for word in words if os.path.isfile(word)]
        example = f"for example: dmods findleaks {given[-1]}   (`dmods` lists the commands)" if given else USAGE
        raise UsageError(f"the command comes first, not {name}", example)
    return _command(find_command(name), [*rest, *options], asked)


def _helped(words: Sequence[str]) -> bool:
    """Show the help that is not about one command. Return whether the words ask for such help."""
    if not words:
        print(_overview())
    elif words[0] == "--man":
        from dmods.cli import man  # only this needs every command

        man.main()
    elif words[0] == "json":
        from dmods.cli.json_page import help_text  # every command, too

        print(help_text(words[1] if len(words) > 1 else None), end="")
    else:
        return False
    return True


def _options_first(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words behind our own options, and those options. They may stand before the command's name."""
    count = 0
    while count < len(words) and words[count].split("=")[0] in ("--exe", "--sysroot", "-p", "--pid"):
        count += 1 if "=" in words[count] else 2
    return words[count:], words[:count]


def _command(command: Command, words: Sequence[str], asked: Asked) -> int:
    if KERNEL in command.requires:
        args = _arguments(command, words)
        asked.target, asked.json = args.core, args.json
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
        process: Optional[int] = getattr(args, "process", None)
        asked.target, asked.json = args.core if process is None else f"process {process}", args.json
        args.pid = (live_process(args.core) if process is None else process) if command.live else None
        named = args.core is not None or process is not None
        target = _target(args) if named and args.pid is None else None
        addresses = pipeline.from_stdin(command, args, sys.stdin)
        if addresses is not None:
            safe_output()
            return pipeline.for_each(command, target, args, addresses, out=sys.stdout, err=sys.stderr)
        typed_as(lambda: in_shell(args))
        # A command that requires nothing does not look at its target.
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
    which = "the oldest core file" if command.compares else "the core file"
    which += ", or the pid of a live process" if command.live else ""
    core = Argument("core", help=which, **({} if command.requires else {"nargs": "?"}))
    extra: Sequence[Argument] = (EXE, SYSROOT, MAX_SIZE, DEBUGINFOD)
    of_process = False
    if KERNEL not in command.requires and (command.requires or command.live):
        extra, of_process = (*extra, PROCESS), names_process(words)
    if KERNEL in command.requires:
        from dmods.cli.drgn_starter import FOR_KERNELS  # the core of a process needs nothing of drgn

        extra = FOR_KERNELS
    parser = command.parser(before=[] if of_process else [core], after=extra, prog=f"dmods {command.name}")
    # Intermixed: in `findleaks core -d main` plain argparse gives the optional address up once it has seen the core.
    args = parser.parse_intermixed_args(words)
    if of_process:
        args.core = None
    elif command.compares:
        cores: list[str] = [args.core, *args.base]
        args.base, args.core = cores[:-1], cores[-1]
    return args


def _kernel_dump(name: str, words: Sequence[str]) -> Optional[str]:
    """Return the kernel's dump in a command line, or None. It counts only where kernels have a command of that name.

    Raises UserError if the words are those of a kernel's command and its file cannot be opened or is no dump.
    """
    command = find_command(name, KERNEL)
    if KERNEL not in command.requires:
        return None
    try:
        args = _arguments(command, words)
    except UserError:
        return None
    dump: str = args.core
    try:
        _target(args)
    except KernelDumpError:
        return dump
    return None


def _in_drgn(name: str, dump: str, words: Sequence[str]) -> int:
    """Run the command in drgn, which knows the types of a kernel."""
    from dmods.cli import drgn_starter

    options, rest = drgn_starter.split_options(words)
    rest.remove(dump)
    return drgn_starter.run_command(dump, name, rest, options)


def _target(args: argparse.Namespace) -> CoreFile:
    from dmods.corefile.target import CoreFile

    limit_size(args.max_size)
    if not hasattr(args, "exe"):  # a kernel's command
        return CoreFile(args.core)
    check_files(args)
    if getattr(args, "process", None) is not None:
        from dmods.cli.live import pictures

        return pictures(args)
    return CoreFile(args.core, args.exe, args.sysroot)


def _overview() -> str:
    """Return a line for every name that can be typed, grouped by what it needs."""
    found = [load_command(module) for _name, _side, module in command_modules()]
    alone = {name: import_module(module) for name, module in SHELL_VERBS.items()}
    width = max(len(name) for name in [*alone, *(command.name for command in found)])

    def line(name: str, summary: str) -> str:
        return f"  {name:<{width}}  {summary}"

    processes = [line(one.name, one.summary) for one in found if KERNEL not in one.requires and one.requires]
    kernels = [line(one.name, one.summary) for one in found if KERNEL in one.requires]
    others = [line(one.name, one.summary) for one in found if not one.requires]
    shell = [each for name, one in alone.items() for each in (line(name, one.SUMMARY), line("", _bare(one.USAGE)))]
    parts = {
        "On the core of a process:": processes,
        "On a kernel's dump (vmcore), through drgn:": kernels,
        "Without a core:": [*others, *shell],
    }
    shown = [USAGE, *(text for title, lines in parts.items() for text in ("", title, *lines))]
    across = terminal_width(sys.stdout)
    return "\n".join(paragraph(text, across, width + 2 if text.startswith(" ") else 4) for text in shown)


def _bare(usage: str) -> str:
    return usage.partition(": ")[2]


if __name__ == "__main__":
    sys.exit(main())
