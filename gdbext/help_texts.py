"""The texts of gdb's ``help NAME``. gdb asks for a text as it registers a command, before anybody types its name.

The texts are in a table, ``help.json``, which scripts/docs makes from the commands. To import all commands for their
texts would take most of the time that dmods adds to gdb's start. A command that the table does not have is imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

from dmods.command import USERLAND, Argument, Command, HelpFormatter, command_modules, load_command

_TABLE = "help.json"
_WIDTH = 80  # columns: gdb's own texts are no wider
_COLUMN = 24  # where the explanation of an argument begins, as argparse has it


def known_texts() -> dict[str, str]:
    """Return the texts of the table by the commands' names. Without a table, as in an incomplete copy, it has none."""
    try:
        with open(os.path.join(os.path.dirname(__file__), _TABLE), encoding="utf-8") as file:
            found: dict[str, str] = json.load(file)
    except (OSError, ValueError):
        return {}
    return found


def help_text(command: Command) -> str:
    """Return a command's text. `help mdb` lists its first line, and `apropos` finds it."""
    rows = [*command.arguments, Argument("--json", action="store_true", help="one JSON object instead of text")]
    parts = [f"{command.summary.rstrip('.')}.\n{_usage(command.name, rows)}", _filled(command.description)]
    places = [each for each in rows if not each.names[0].startswith("-")]
    options = [each for each in rows if each.names[0].startswith("-")]
    for title, listed in (("arguments:", places), ("options:", options)):
        if listed:
            parts.append("\n".join([title, *(line for each in listed for line in _explained(each))]))
    parts.append(_filled("\n".join(f"  {line}\n      {shows}" for line, shows in command.examples)))
    return "\n\n".join(filter(None, parts))


def _usage(name: str, arguments: Sequence[Argument]) -> str:
    from dmods.cli.reference import usage

    return _wrapped(" ".join(map(usage, arguments)), f"Usage: {name} ", len("Usage: ") + 4)


def _explained(argument: Argument) -> Iterator[str]:
    from dmods.cli.reference import takes_value, value_name

    value = value_name(argument)
    names = argument.names if argument.names[0].startswith("-") else ()
    shown = ", ".join(f"{name} {value}" if takes_value(argument) else name for name in names) or value
    begins = f"  {shown}  "
    if len(begins) > _COLUMN:
        yield begins.rstrip()
        begins = ""
    yield _wrapped(argument.help, f"{begins:<{_COLUMN}}", _COLUMN)


def _wrapped(text: str, first: str, margin: int) -> str:
    import textwrap  # only who makes a text needs it

    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _filled(text: str) -> str:
    return HelpFormatter("")._fill_text(text, _WIDTH, "")


def table() -> str:
    """Return the whole table as JSON, made from the commands."""
    found = [load_command(module) for _name, side, module in command_modules() if side == USERLAND]
    return json.dumps({command.name: help_text(command) for command in found}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
