"""What the TAB key offers: in gdb, at drgn's prompt, and in the shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from dmods import command as commands
from dmods.command import Argument, Command
from dmods.frontend import EXE, SYSROOT

SUMMARY = 'TAB for bash: eval "$(dmods complete)" in ~/.bashrc'
USAGE = "usage: dmods complete"
# bash runs it at each TAB with the line in COMP_LINE (bash(1), "Programmable Completion"); where it says nothing, bash
# offers files.
_FOR_BASH = "complete -o default -C 'dmods complete' dmods"


def candidates(command: Command, word: str, extra: Sequence[Argument] = ()) -> list[str]:
    """What begins with ``word``: options after a dash, else choices where the command has them."""
    if word.startswith("-"):
        arguments = [*command.arguments, *extra, Argument("--json"), Argument("--help")]
        offered = [name for each in arguments for name in each.names if name.startswith("-")]
    else:
        offered = choices(command)
    return [each for each in offered if each.startswith(word)]


def choices(command: Command) -> list[str]:
    """What may stand where the command takes one of a few words (`walk NAME`)."""
    places = [each for each in command.arguments if not each.names[0].startswith("-")]
    return [str(choice) for each in places for choice in each.options.get("choices") or ()]


def run(words: Sequence[str]) -> int:
    """Without bash's variables: what bash is to be told."""
    line = os.environ.get("COMP_LINE")
    if line is None or (words and words[0] in ("-h", "--help")):
        print(_FOR_BASH)
        return 0
    point = os.environ.get("COMP_POINT", "")
    sys.stdout.writelines(f"{each}\n" for each in of_line(line[: int(point)] if point.isdecimal() else line))
    return 0


def of_line(line: str) -> list[str]:
    """For the last word of what stands on the command line so far."""
    words = (
        line.split(" ") if "'" in line or '"' in line else [*shlex.split(line), *([""] if line[-1:].isspace() else [])]
    )
    _dmods, *before, word = words if len(words) > 1 else [*words, ""]
    if not before or before == ["help"]:
        from dmods.__main__ import ALONE

        return sorted(name for name in {*commands.names(), *ALONE, "help"} if name.startswith(word))
    if before[0] not in commands.names():
        return []
    sides = [commands.load(module) for name, _side, module in commands.modules() if name == before[0]]
    return sorted({each for one in sides for each in candidates(one, word, (EXE, SYSROOT))})
