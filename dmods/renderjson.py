"""Report -> one JSON object. Written as the rows come, like the text: see dmods/render.py."""

from __future__ import annotations

from json import dumps
from typing import Callable, Optional, TextIO

from dmods.render import Subject, batches
from dmods.report import Report, Value


def write(report: Report, command: str, target: Optional[Subject], notes: Callable[[], list[str]], out: TextIO) -> None:
    """One object, written as the rows come: a row a line. ``notes`` is asked last."""
    out.write(f'{{"command": {dumps(command)}, "target": {dumps(_name(target))}, "tables": [')
    for number, table in enumerate(report.tables):
        out.write(f'{", " if number else ""}{{"name": {dumps(table.name)}, "rows": [')
        # Made from a template: json.dumps() of each row would take four times as long.
        named = [(index, column) for index, column in enumerate(table.columns) if column.name]
        keys = (dumps(column.name).replace("%", "%%") for _index, column in named)
        row = "{" + ", ".join(f"{key}: %s" for key in keys) + "}"
        cells = [(index, _json_address if column.kind == "address" else _json_value) for index, column in named]
        between = "\n"
        for batch in batches(table.rows):
            rows = [row % tuple([cell(values[index]) for index, cell in cells]) for values in batch]
            out.write(between + ",\n".join(rows))
            between = ",\n"
        out.write("\n]}")
    out.write(f'], "totals": {dumps(report.totals)}, "notes": {dumps(notes())}}}\n')
    out.flush()


def _name(target: Optional[Subject]) -> Optional[str]:
    """The core, "process PID" or "kernel"; None for a command that needs no target."""
    if target is None or target.path is not None:
        return target.path if target is not None else None
    return f"process {target.pid}" if target.pid is not None else "kernel"


def _json_address(value: Value) -> str:
    return f'"{value:#x}"' if isinstance(value, int) else _json_value(value)


def _json_value(value: Value) -> str:
    return str(value) if type(value) is int else dumps(value)
