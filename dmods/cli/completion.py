"""The words that the TAB key offers in gdb, at drgn's prompt and in the shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from dmods.cli.frontend import DEBUGINFOD, EXE, PROCESS, SYSROOT
from dmods.cli.verbs import SHELL_VERBS
from dmods.command import Argument, Command, command_modules, command_names, load_command

SUMMARY = 'TAB for bash: eval "$(dmods complete)" in ~/.bashrc'
USAGE = "usage: dmods complete"
# bash runs the command at each TAB, with the line in COMP_LINE (bash(1), "Programmable Completion"). Where the command
# prints nothing, bash offers files.
_FOR_BASH = "complete -o default -C 'dmods complete' dmods"


def candidates(command: Command, word: str, extra: Sequence[Argument] = ()) -> list[str]:
    """Return the words that begin with ``word``: options after a dash, else the command's choices."""
    if word.startswith("-"):
        arguments = [*command.arguments, *extra, Argument("--json"), Argument("--help")]
        offered = [name for each in arguments for name in each.names if name.startswith("-")]
    else:
        offered = choices(command)
    return [each for each in offered if each.startswith(word)]


def choices(command: Command) -> list[str]:
    """Return the words of an argument that takes one of a few (`walk NAME`)."""
    places = [each for each in command.arguments if not each.names[0].startswith("-")]
    return [str(choice) for each in places for choice in each.options.get("choices") or ()]


def run(words: Sequence[str]) -> int:
    """Print candidates for bash's line. Without a line, print the command that registers the completion."""
    line = os.environ.get("COMP_LINE")
    if line is None or (words and words[0] in ("-h", "--help")):
        print(_FOR_BASH)
        return 0
    point = os.environ.get("COMP_POINT", "")
    sys.stdout.writelines(f"{each}\n" for each in of_line(line[: int(point)] if point.isdecimal() else line))
    return 0


def of_line(line: str) -> list[str]:
    """Return candidates for the last word of a command line."""
    words = (
        line.split(" ") if "'" in line or '"' in line else [*shlex.split(line), *([""] if line[-1:].isspace() else [])]
    )
    _dmods, *before, word = words if len(words) > 1 else [*words, ""]
    if not before or before == ["help"]:
        return sorted(name for name in {*command_names(), *SHELL_VERBS, "help"} if name.startswith(word))
    if before[0] not in command_names():
        return []
    sides = [load_command(module) for name, _side, module in command_modules() if name == before[0]]
    return sorted({each for one in sides for each in candidates(one, word, (EXE, SYSROOT, DEBUGINFOD, PROCESS))})
