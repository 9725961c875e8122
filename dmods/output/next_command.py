"""The next command as the reader types it, to be pasted: in the shell with the dump, in gdb and drgn as named there.

Answers name commands as gdb has them: "findleaks -d --top 3". The front end says once how its user types them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dmods.command import command_names

#: The environment variable with the words of the shell, where drgn was started by one of our own command lines.
IN_SHELL = "DMODS_TYPED"
NAME = "NAME"  # stands for the command in what the front end says
_OPTIONS = (("process", "-p"), ("exe", "--exe"), ("sysroot", "--sysroot"), ("max_size", "--max-size"))

# One process has one front end.
_form: list[Callable[[], str]] = [lambda: NAME]


def typed_as(form: Callable[[], str]) -> None:
    """Remember how commands are typed here. ``form`` has NAME for the command's name: "dmods NAME core.1603"."""
    _form[:] = [form]


def in_shell(args: Any) -> str:
    """Return the form for the shell, with the dump or the process and the options that name its files."""
    words = ["dmods", NAME]
    if getattr(args, "core", None) is not None:
        words.append(args.core)
    for name, option in _OPTIONS:
        value = getattr(args, name, None)
        if value is not None:
            words += [option, str(value)]
    if getattr(args, "debuginfod", False):
        words.append("--debuginfod")
    from dmods.base.raw_names import shell_line  # few answers name a command

    return shell_line(words)


def as_typed(command: str) -> str:
    """Return a command as it is typed here. A sentence, and a command of another program, stay as they are."""
    name, _, rest = command.partition(" ")
    if name not in command_names():
        return command
    before, _, after = _form[0]().partition(NAME)
    return f"{before}{name}{after}{' ' * bool(rest)}{rest}"


def all_as_typed(commands: Iterable[str]) -> list[str]:
    """Return the commands as they are typed here."""
    return [as_typed(command) for command in commands]
