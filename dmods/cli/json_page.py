"""docs/JSON.md: the tables, columns and totals that each command has in JSON, from the commands' own data.

scripts/docs writes the page, and `dmods help json` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from dmods.cli.reference import anchor, everything, title
from dmods.command import Command
from dmods.errors import UsageError
from dmods.output.json import VERSION
from dmods.report import Column, Schema

#: The kinds of columns (dmods.report.Column), as JSON has them.
KINDS = {
    "text": "text",
    "address": "address",
    "bytes": "integer, bytes",
    "size": "integer, bytes",
    "count": "integer",
    "percent": "number, percent",
    "share": "number, percent",
    "time": "integer, nanoseconds",
    "ns": "integer, nanoseconds",
    "seconds": "number, seconds",
    "hours": "number, hours",
    "flag": "true or false",
    "texts": "array of texts",
    "counts": "array of integers",
    "sizes": "array of integers, bytes",
    "addresses": "array of addresses",
    "averages": "array of numbers",
    "object": "object",
    "objects": "array of objects",
    "named_counts": "object: a name, and an integer",
    "named_addresses": "object: a name, and an address",
}

#: The statuses of every command.
_USUAL = (0, 1, 2)
_INTRODUCTION = f"""\
# JSON

<!-- Made by scripts/docs from the commands themselves: change those. -->

Every command takes `--json` and then writes one object to stdout. [report.schema.json](report.schema.json) describes
its shape for programs. This page says which tables, columns and totals each command has. `dmods help json` prints the
page, and `dmods help json NAME` the part about one command.

## The object

| key | value | |
|---|---|---|
| `version` | integer | {VERSION}: the version of the object, see below |
| `command` | text | the command; null if the command line does not name one |
| `target` | text | the dump, `process PID` or `kernel`; null if the command needs none |
| `tables` | array of objects | each has a `name` and `rows`; the keys of a row are the columns |
| `totals` | object | sums and facts about the whole answer; it may be empty |
| `notes` | array of texts | what the dump lacks, and what is left out, for people |
| `verdict` | object | only of commands that check something: `possible` (true or false), and `reason` (a text) |
| `error` | object | only if the command failed: `what` and `how` (texts) |
| `status` | integer | the exit status of `dmods NAME` |

The status is 0 if the command is done, 1 if something cannot be done or a part of the answer is missing, and 2 for a
wrong command line. Each command lists its others.

A command that could not begin has no `tables`, `totals` and `notes`. An empty table means that nothing was found only
if a verdict is possible. Without a verdict (status 4), tables and totals may be missing, and totals may be null.

A command that reads addresses (`dmods NAME core -`, or a pipe at mdb's prompt) has the tables for all of them, and one
total: `addresses`, how many there were. A table comes several times if its columns differ, or if its line says so.

## What may change

Within one version:

- commands, tables, columns, totals and keys may be added: a program ignores what it does not know;
- the order of tables, of rows without a stated order, and of keys may change;
- the words of texts for people may change: `notes`, `what`, `how`, `reason`, and sentences in columns;
- a table may be there in more cases than this page says, and a text may have new values.

Each of these gets a new version, and a line in CHANGELOG.md:

- a command, table, column, total or key is removed, or gets another name;
- a value gets another type or another unit;
- a value may be null, or a column or key may be missing, where this page does not say so.

## Values

An address is a text, `"0x"` and digits in lower case: some readers of JSON cannot hold integers of 64 bits. Sizes are
integers of bytes, and exact, also where text shows 1.5M. Percentages go from 0 to 100; of growth, below and above. An
age is in nanoseconds. So is a timestamp, by the clock of who recorded it.

A value is never null, and a column never missing, unless its line says so. "Null if" and "only" say when.
A name with a star stands for many columns, whose names come from the dump.
"""


def page(commands: Iterable[Command]) -> str:
    """Return the whole page, as Markdown."""
    found = list(commands)
    rows = [f"| [`{title(one)}`](#{anchor(one)}) | {_table_names(one)} |" for one in found]
    parts = [_INTRODUCTION, "\n".join(["## Commands\n", "| command | tables |", "|---|---|", *rows])]
    parts += ["\n".join(section(one)) for one in found]
    parts += ["# Objects\n\nThese objects stand in columns."]
    parts += ["\n".join(_fields(one)) for one in objects(found)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def objects(commands: Iterable[Command]) -> list[Schema]:
    """Return the objects that stand in cells of the commands' tables and totals, by name."""
    found: dict[str, Schema] = {}
    for command in commands:
        for columns in (command.sums(), *(schema.columns for schema in command.schemas())):
            _add_objects(columns, found)
    return [found[name] for name in sorted(found)]


def _add_objects(columns: Sequence[Column], found: dict[str, Schema]) -> None:
    for column in columns:
        if column.fields is not None and column.fields.name not in found:
            found[column.fields.name] = column.fields
            _add_objects(column.fields.columns, found)


def _table_names(command: Command) -> str:
    return ", ".join(dict.fromkeys(f"`{schema.name}`" for schema in command.schemas()))


def section(command: Command) -> Iterator[str]:
    """Yield the lines about one command, as Markdown."""
    yield f"## {title(command)}\n"
    more = [f"{status} ({means})" for status, means in command.statuses().items() if status not in _USUAL]
    yield f"Status: {', '.join([*map(str, _USUAL), *more])}."
    for schema in command.schemas():
        yield f"\n### `{schema.name}`{_when(schema.when)}\n"
        yield f"One row: {schema.row}.\n"
        yield from _columns(schema.columns)
    if command.sums():
        yield "\n### Totals\n"
        yield from _columns(command.sums())


def _fields(schema: Schema) -> Iterator[str]:
    yield f"## Object `{schema.name}`\n"
    yield f"{schema.row[0].upper()}{schema.row[1:]}.\n"
    yield from _columns(schema.columns)


def _when(text: str) -> str:
    return f": only {text}" if text else ""


def _columns(columns: Iterable[Column]) -> Iterator[str]:
    yield "| name | value | |"
    yield "|---|---|---|"
    for column in columns:
        if column.name:
            yield f"| `{column.name}` | {value_words(column)} | {_said(column)} |".replace(" |  |", " | |")


def value_words(column: Column) -> str:
    """Return the type of the column's values, with their unit, in words."""
    of = f" [{column.fields.name}](#object-{column.fields.name})" if column.fields is not None else ""
    return KINDS[column.kind] + of


def _said(column: Column) -> str:
    """Return what the column means, when its value is null, and when it is there."""
    null = f"null if {column.null}" if column.null else ""
    return "; ".join(filter(None, (column.about, null, f"only {column.when}" if column.when else ""))).replace(
        "|", "\\|"
    )


def help_text(name: str | None) -> str:
    """Return the page, or the part about the commands of that name. Raises UsageError for an unknown name."""
    commands = everything()
    if name is None:
        return page(commands)
    wanted = [one for one in commands if one.name == name]
    if not wanted:
        raise UsageError(f"there is no command {name!r}", "`dmods -l` lists the commands")
    parts = ["\n".join(section(one)) for one in wanted] + ["\n".join(_fields(one)) for one in objects(wanted)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the page to stdout."""
    sys.stdout.write(page(everything()))


if __name__ == "__main__":
    main()
