"""docs/COMMANDS.md, made from the commands' own data (scripts/docs writes it)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from dmods.command import KERNEL, Argument, Command, command_modules, load_command

INTRODUCTION = """\
# Commands

<!-- Made by scripts/docs from the commands themselves: change those. -->

In gdb each command is there as `mdb NAME`, and as plain `NAME` unless gdb has a command of that name. `help NAME`
explains it. In drgn it is `drgn -c core NAME [args]` where the launchers are (`dmods link DIR`), and `%NAME` at the
prompt. Without a debugger it is `dmods NAME core [args]`. The commands marked (kernel) are for kernel dumps, in drgn.
The others are for cores of processes.

Addresses may be written as `0x...`, a symbol, `symbol+offset` or ``module`symbol+offset``; in gdb and at drgn's prompt
also as any expression.

Every command takes `-h` and `--json`. The answer is then one object. [JSON.md](JSON.md) has the tables and columns of
each command, and says what may change. [report.schema.json](report.schema.json) describes the object for programs.

The standalone form takes `--exe FILE` and `--sysroot DIR`; DIR is a folder with the other machine's files,
`/proc/PID/root`, or the image of a container (an OCI image layout, or what `docker save` wrote). `--debuginfod` asks
the servers of DEBUGINFOD_URLS for programs and debug information that are not here. `-p PID` in the place of the core
takes a picture of a live process: it stands still for a moment and runs on. The exit status is 0 when done, 1 when
something cannot be done, 2 for a wrong command line, 3 when something was found and an option asked for this status,
and 4 when no verdict is possible. Notes and errors go to stderr. On a terminal, long lines are broken to fit. Output
to a pipe is not.
"""


def page(commands: Iterable[Command]) -> str:
    """Return the whole page, as Markdown."""
    found = list(commands)
    table = [f"| [`{title(one)}`](#{anchor(one)}) | {one.summary} |" for one in found]
    parts = [INTRODUCTION, "\n".join(["| command | what it gives |", "|---|---|", *table])]
    parts += ["\n".join(_section(one)) for one in found]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def title(command: Command) -> str:
    """Return the heading of the command."""
    return f"{command.name} (kernel)" if KERNEL in command.requires else command.name


def anchor(command: Command) -> str:
    """Return the anchor that Markdown renderers make of the heading."""
    return title(command).replace(" ", "-").translate({ord("("): None, ord(")"): None})


def _section(command: Command) -> Iterator[str]:
    yield f"## {title(command)}\n"
    yield f"    {' '.join([command.name, *map(usage, command.arguments)])}\n"
    yield command.summary[0].upper() + command.summary[1:] + "."
    if command.description:
        yield f"\n{command.description}"
    if command.arguments:
        yield "\n| argument | |\n|---|---|"
        for argument in command.arguments:
            names = argument.names if argument.names[0].startswith("-") else (value_name(argument),)
            value = f" {value_name(argument)}" if takes_value(argument) and names is argument.names else ""
            shown = ", ".join(f"`{name}{value}`" for name in names).replace("|", "\\|")
            yield f"| {shown} | {argument.help} |"
    if command.examples:
        yield ""
        for line, shows in command.examples:
            yield f"- `{line}`: {shows}"


def usage(argument: Argument) -> str:
    """Return the argument as a usage line has it: ``[--top N]``, ``[ADDR]``, ``NAME``."""
    if argument.names[0].startswith("-"):
        text = f"{argument.names[0]} {value_name(argument)}" if takes_value(argument) else argument.names[0]
        return text if argument.options.get("required") else f"[{text}]"
    name = value_name(argument)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(argument.options.get("nargs", ""), name)


def takes_value(argument: Argument) -> bool:
    """Return whether the argument has a value: an option that is no switch."""
    return argument.options.get("action", "store") in ("store", "append")


def value_name(argument: Argument) -> str:
    """Return what stands for the argument's value."""
    longest = max(argument.names, key=len)
    return str(argument.options.get("metavar") or longest.lstrip("-").replace("-", "_").upper())


def everything() -> list[Command]:
    """Return every command: those for processes, then those for kernels."""
    sides = sorted(command_modules(), key=lambda one: one[1] == KERNEL)
    return [load_command(module) for _name, _side, module in sides]


def main() -> None:
    """Write the page to stdout."""
    sys.stdout.write(page(everything()))


if __name__ == "__main__":
    main()
