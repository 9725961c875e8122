"""Write a report, or an error, as one JSON object. docs/JSON.md and docs/report.schema.json describe it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, Optional, TextIO

from dmods.base.dataclass import as_mapping
from dmods.base.raw_names import in_json
from dmods.errors import UsageError, UserError
from dmods.output.streaming import Subject, batches, target_name
from dmods.report import Address, Report, Table, Value

#: The version of the object. docs/JSON.md (dmods/cli/json_page.py) says what may change without a new one.
VERSION = 1

_MOST_KEPT = 4096  # results of functions, for each column


def write(report: Report, command: str, target: Optional[Subject], notes: Callable[[], list[str]], out: TextIO) -> None:
    """Write one object. Each row is written when it is made. ``notes`` is called after the last row.

    A UserError that a row raises ends the object: it gets "error", and the error goes on to the caller.
    """
    head = {"version": VERSION, "command": command, "target": target_name(target)}
    out.write(f'{dumps(head)[:-1]}, "tables": [')
    status = report.status
    failure: Optional[UserError] = None
    try:
        for number, table in enumerate(table for table in report.tables if table.only != "text"):
            out.write(f'{", " if number else ""}{{"name": {dumps(table.name)}, "rows": [')
            _write_rows(table, out)
    except UserError as error:
        failure, status = error, 2 if isinstance(error, UsageError) else 1
        out.write("\n]}")
    rest: dict[str, Any] = {"totals": _plain(report.totals), "notes": notes()}
    if report.verdict is not None:
        rest["verdict"] = as_mapping(report.verdict)
    if failure is not None:
        rest["error"] = _error(failure)
    rest["status"] = status
    out.write(f"], {dumps(rest)[1:]}\n")
    out.flush()
    if failure is not None:
        failure.in_json = True
        raise failure


def dumps(value: object) -> str:
    """Return the value as JSON that every reader takes."""
    return in_json(json.dumps(value))


def _write_rows(table: Table, out: TextIO) -> None:
    # Made from a template: json.dumps() of each row would take four times as long.
    named = [(index, column) for index, column in enumerate(table.columns) if column.name]
    keys = (dumps(column.name).replace("%", "%%") for _index, column in named)
    row = "{" + ", ".join(f"{key}: %s" for key in keys) + "}"
    cells = [(index, _json_address if column.kind == "address" else _Values()) for index, column in named]
    between = "\n"
    for batch in batches(table.rows):
        rows = [row % tuple([cell(values[index]) for index, cell in cells]) for values in batch]
        out.write(between + ",\n".join(rows))
        between = ",\n"
    out.write("\n]}")


def write_error(error: UserError, command: Optional[str], target: Optional[str], status: int, out: TextIO) -> None:
    """Write an error as the whole answer. ``target`` is the dump as the user named it."""
    whole = {"version": VERSION, "command": command, "target": target, "error": _error(error), "status": status}
    out.write(dumps(whole) + "\n")
    out.flush()


def _error(error: UserError) -> dict[str, str]:
    return {"what": error.what, "how": error.how}


def _json_address(value: Value) -> str:
    return f'"{value:#x}"' if isinstance(value, int) else _json_value(value)


def _json_value(value: Value) -> str:
    return str(value) if type(value) is int else dumps(_plain(value))


class _Values:
    """Convert the cells of a column to JSON. A function that stands in many rows is called once.

    Many blocks share a stack: a walk of a million records has a few thousand stacks.
    """

    def __init__(self) -> None:
        self._made: dict[Callable[[], Value], str] = {}

    def __call__(self, value: Value) -> str:
        if not callable(value):
            return _json_value(value)
        made = self._made.get(value)
        if made is None:
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
            made = self._made[value] = dumps(_plain(value))
        return made


def _plain(value: Value) -> Value:
    """Return the value with every Address in it as text, and with the results of functions in their place."""
    if isinstance(value, Address):
        return hex(value)
    if callable(value):
        return _plain(value())
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
