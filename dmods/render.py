"""Report -> text (and, in dmods/renderjson.py, JSON). The one place that knows widths, units, hexadecimal and colour.

Rows are printed as they come: a walk of ten million addresses is never held in memory. Tables are laid out here and
not by a library because mdb's layouts have least widths and zero-padded addresses, and because of the streaming.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Callable, Optional, Protocol, TextIO

from dmods.report import Column, Report, Table, Value

BATCH = 1000  # rows that are looked at together: the first of them set the widths of a grid
_ABSENT = "-"  # None in text; null in JSON

Cell = Callable[[Value], str]


class Subject(Protocol):
    """What an answer is about, as far as its printed form says: a dmods.target.Target, or a kernel."""

    path: Optional[str]  # the dump; None for what is alive
    pid: Optional[int]
    notes: list[str]


def render(  # noqa: PLR0917 (every front end gives all six)
    report: Report, command: str, target: Optional[Subject], json: bool, out: TextIO, err: TextIO
) -> None:
    """Writes the report: results to ``out``; notes (the target's and the report's) to ``err``, or into the JSON object.

    The notes come last, for what is found while the rows are made.
    """

    def all_notes() -> list[str]:
        return list(dict.fromkeys([*(target.notes if target is not None else ()), *report.notes]))

    if json:
        from dmods.renderjson import write  # json takes a while to import

        write(report, command, target, all_notes, out)
        return
    for number, table in enumerate(report.tables):
        if number and not table.joined:
            out.write("\n")
        for text in _table(table, _bold(out)):
            out.write(text)
    out.flush()
    for note in all_notes():
        err.write(f"note: {printable(note)}\n")


def printable(text: str) -> str:
    """Without control characters: a path out of a dump must not drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _bold(out: TextIO) -> Callable[[str], str]:
    if out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return lambda text: f"\x1b[1m{text}\x1b[22m"
    return lambda text: text


def _table(table: Table, bold: Callable[[str], str]) -> Iterator[str]:
    if table.title:
        yield bold(printable(table.title)) + "\n"
    if table.style == "plain":
        yield from _plain(table)
    elif table.style == "record":
        yield from _records(table)
    elif table.style == "advice":
        yield from _advice(table)
    elif table.fold:
        yield from _folded(table, bold)
    else:
        yield from _grid(table, bold)
    for line in table.footer:
        yield printable(line) + "\n"


def batches(rows: Iterable[Sequence[Value]]) -> Iterator[list[Sequence[Value]]]:
    walker = iter(rows)
    while batch := list(islice(walker, BATCH)):
        yield batch


def _shown(table: Table) -> list[tuple[int, Column]]:
    """The columns that text has, each with its place in a row."""
    return [(index, column) for index, column in enumerate(table.columns) if not column.hidden]


def _grid(table: Table, bold: Callable[[str], str]) -> Iterator[str]:
    columns = [column for _index, column in _shown(table)]
    cells = [(index, _cell(column)) for index, column in _shown(table)]
    line = ""
    for batch in batches(table.rows):
        # Column by column, and lines from a template: a million rows take a third of the time.
        texts = [[cell(row[index]) for row in batch] for index, cell in cells]
        if not line:
            widths = [max(c.width, len(c.heading), *map(len, own)) for c, own in zip(columns, texts)]
            line = _template(columns, widths)
            yield bold((line % tuple(column.heading for column in columns)).rstrip()) + "\n"
            if any(column.rule for column in columns):
                yield (line % tuple("-" * column.rule for column in columns)).rstrip() + "\n"
        yield "".join([(line % row).rstrip() + "\n" for row in zip(*texts)])


def _folded(table: Table, bold: Callable[[str], str]) -> Iterator[str]:
    """All to the right, as mdb does it, and addresses without leading zeros."""
    shown = _shown(table)
    cells = [(index, _hex if column.kind == "address" else _cell(column)) for index, column in shown]
    headings = [column.heading for _index, column in shown]
    least = [max(column.width, len(heading)) for (_index, column), heading in zip(shown, headings)]
    widths = [max(least[place :: table.fold]) for place in range(table.fold)]

    def lines(texts: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(texts), table.fold):
            yield " ".join(text.rjust(width) for text, width in zip(texts[start:], widths)).rstrip() + "\n"

    yield from (bold(line[:-1]) + "\n" for line in lines(headings))
    for row in table.rows:
        yield from lines(
            [cell(row[index]) if shown[place][1].name else "" for place, (index, cell) in enumerate(cells)]
        )


def _template(columns: Sequence[Column], widths: Sequence[int]) -> str:
    """Numbers to the right, under headings to the right; text to the left."""
    return " ".join(f"%{'-' if column.kind == 'text' else ''}{width}s" for column, width in zip(columns, widths))


def _plain(table: Table) -> Iterator[str]:
    if table.lines is not None:
        yield from table.lines
        return
    space = " " * table.indent
    # With 0x, as mdb's ::walk: these lines are fed to other commands.
    cells = [(index, _prefixed if column.kind == "address" else _cell(column)) for index, column in _shown(table)]
    if len(cells) == 1:  # a walk: as fast as may be
        only, cell = cells[0]
        for batch in batches(table.rows):
            yield "".join([space + cell(row[only]) + "\n" for row in batch])
        return
    for batch in batches(table.rows):
        yield "".join(space + " ".join(cell(row[index]) for index, cell in cells).rstrip() + "\n" for row in batch)


def _records(table: Table) -> Iterator[str]:
    columns = _shown(table)
    width = max((len(column.heading) for _index, column in columns), default=0) + 1
    cells = [(index, f"{column.heading + ':':<{width}} ", _cell(column)) for index, column in columns]
    for number, row in enumerate(table.rows):
        lines = [f"{heading}{cell(row[index])}\n" for index, heading, cell in cells]
        yield ("\n" if number else "") + "".join(lines)


def _advice(table: Table) -> Iterator[str]:
    rows = [[_text(value) for value in row] for row in table.rows]
    width = max((len(what) for what, _found, _help in rows), default=0) + 1
    for what, found, advice in rows:
        yield f"{what + ':':<{width}} {found}\n"
        if advice != _ABSENT:
            yield f"{'':<{width}} -> {advice}\n"


def _cell(column: Column) -> Cell:
    if column.kind == "address":
        return _padded if column.width >= 16 else _hex
    if column.kind == "time":
        return _hex
    return _percent if column.kind == "percent" else _text


def _padded(value: Value) -> str:
    return f"{value:016x}" if isinstance(value, int) else _text(value)


def _hex(value: Value) -> str:
    return f"{value:x}" if isinstance(value, int) else _text(value)


def _prefixed(value: Value) -> str:
    return hex(value) if isinstance(value, int) else _text(value)


def _percent(value: Value) -> str:
    return f"{value:.0f}%" if isinstance(value, (int, float)) else _text(value)


def _text(value: Value) -> str:
    if value is None:
        return _ABSENT
    return printable(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
