"""Print the tables of a report as text. Only this module knows widths, units, hexadecimal and colour.

Rows are printed as they come, so that a walk of ten million addresses is never held in memory. No library lays out the
tables, because mdb's layouts have least widths and zero-padded addresses, and because rows are streamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Callable, Optional, TextIO

from dmods.base.raw_names import printable
from dmods.base.sizes import human_size
from dmods.output.layout import Plan, cells_in_lines, hanging, paragraph
from dmods.output.streaming import batches
from dmods.report import Column, Table, Value

_ABSENT = "-"  # None in text; null in JSON

Cell = Callable[[Value], str]


def emphasis(out: TextIO) -> Callable[[str], str]:
    """Return a function that makes text bold on a terminal and returns it unchanged elsewhere."""
    if out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return lambda text: f"\x1b[1m{text}\x1b[22m"
    return lambda text: text


def table_text(table: Table, bold: Callable[[str], str], width: Optional[int] = None) -> Iterator[str]:
    """Yield the table as text, in lines of at most ``width`` characters where one is given."""
    if table.title:
        yield _bold_lines(bold, paragraph(printable(table.title), width))
    if table.style == "plain":
        yield from _plain(table, width)
    elif table.style == "record":
        yield from _records(table, width)
    elif table.style == "advice":
        yield from _advice(table, width)
    elif table.fold:
        yield from _folded(table, bold, width)
    else:
        yield from _grid(table, bold, width)
    for line in table.footer:
        yield paragraph(printable(line), width) + "\n"


def _bold_lines(bold: Callable[[str], str], text: str) -> str:
    return "".join(bold(line) + "\n" for line in text.split("\n"))


def _shown(table: Table) -> list[tuple[int, Column]]:
    """Return the columns that text shows, each with its place in a row."""
    return [(index, column) for index, column in enumerate(table.columns) if not column.hidden]


def _grid(table: Table, bold: Callable[[str], str], width: Optional[int]) -> Iterator[str]:
    columns = [column for _index, column in _shown(table)]
    cells = [(index, cell_text(column)) for index, column in _shown(table)]
    headings = [column.heading for column in columns]
    line = ""
    plan: Optional[Plan] = None
    folded = False  # true: every row is folded, also those that would fit
    for batch in batches(table.rows):
        # Columns are formatted as a whole and lines come from a template: a million rows take a third of the time.
        texts = [[cell(row[index]) for row in batch] for index, cell in cells]
        if not line:
            widths = [max(c.width, len(c.heading), *map(len, own)) for c, own in zip(columns, texts)]
            line = _template(columns, widths)
            if width is not None:
                plan = Plan.make(columns, widths, width)
                rows = (line % row for row in zip(*texts))
                folded = any(len(row.rstrip()) > width for row in (line % tuple(headings), *rows))
            yield from _headings(columns, headings, line, plan if folded else None, bold)
        if plan is None:
            yield "".join([(line % row).rstrip() + "\n" for row in zip(*texts)])
            continue
        for row in zip(*texts):
            text = (line % row).rstrip()
            if folded or len(text) > plan.width:
                text = "\n".join(plan.row(row))
            yield text + "\n"


def _headings(
    columns: Sequence[Column], headings: Sequence[str], line: str, plan: Optional[Plan], bold: Callable[[str], str]
) -> Iterator[str]:
    if plan is None:
        yield bold((line % tuple(headings)).rstrip()) + "\n"
        if any(column.rule for column in columns):
            yield (line % tuple("-" * column.rule for column in columns)).rstrip() + "\n"
    else:
        yield _bold_lines(bold, "\n".join(plan.row(headings, heading=True)))
        if any(column.rule for column in columns):
            yield "\n".join(plan.row(["-" * column.rule for column in columns])) + "\n"


def _folded(table: Table, bold: Callable[[str], str], width: Optional[int]) -> Iterator[str]:
    """Yield cells aligned to the right, as mdb has them, and addresses without leading zeros."""
    shown = _shown(table)
    cells = [(index, _hex if column.kind == "address" else cell_text(column)) for index, column in shown]
    headings = [column.heading for _index, column in shown]
    least = [max(column.width, len(heading)) for (_index, column), heading in zip(shown, headings)]
    widths = [max(least[place :: table.fold]) for place in range(table.fold)]

    def lines(texts: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(texts), table.fold):
            own = texts[start : start + table.fold]
            line = " ".join(text.rjust(width) for text, width in zip(own, widths)).rstrip()
            if width is not None and len(line) > width:
                yield from cells_in_lines([text for text in own if text], width)
            else:
                yield line

    yield from (bold(line) + "\n" for line in lines(headings))
    for row in table.rows:
        texts = [cell(row[index]) if shown[place][1].name else "" for place, (index, cell) in enumerate(cells)]
        yield from (line + "\n" for line in lines(texts))


def _template(columns: Sequence[Column], widths: Sequence[int]) -> str:
    """Return a format for lines: numbers and their headings to the right, text to the left."""
    return " ".join(f"%{'-' if column.is_words else ''}{width}s" for column, width in zip(columns, widths))


def _plain(table: Table, width: Optional[int]) -> Iterator[str]:
    if table.lines is not None:
        yield from table.lines
        return
    space = " " * table.indent
    # With 0x, as mdb's ::walk: these lines are fed to other commands.
    cells = [(index, _prefixed if column.kind == "address" else cell_text(column)) for index, column in _shown(table)]
    if len(cells) == 1 and (width is None or table.columns[cells[0][0]].kind == "address"):  # a walk: it must be fast
        only, cell = cells[0]
        for batch in batches(table.rows):
            yield "".join([space + cell(row[only]) + "\n" for row in batch])
        return
    for batch in batches(table.rows):
        lines = []
        for row in batch:
            texts = [cell(row[index]) for index, cell in cells]
            line = space + " ".join(texts).rstrip()
            if width is not None and len(line) > width:
                line = "\n".join(cells_in_lines([text for text in texts if text], width, table.indent))
            lines.append(line + "\n")
        yield "".join(lines)


def _records(table: Table, width: Optional[int]) -> Iterator[str]:
    columns = _shown(table)
    room = max((len(column.heading) for _index, column in columns), default=0) + 1
    cells = [(index, f"{column.heading + ':':<{room}} ", cell_text(column)) for index, column in columns]
    for number, row in enumerate(table.rows):
        yield "\n" if number else ""
        for index, heading, cell in cells:
            yield _beside(heading, cell(row[index]), width)


def _advice(table: Table, width: Optional[int]) -> Iterator[str]:
    rows = [[_text(value) for value in row] for row in table.rows]
    room = max((len(what) for what, _found, _help in rows), default=0) + 1
    for what, found, advice in rows:
        yield _beside(f"{what + ':':<{room}} ", found, width)
        if advice != _ABSENT:
            yield _beside(f"{'':<{room}} -> ", advice, width)


def _beside(heading: str, text: str, width: Optional[int]) -> str:
    """Return the text beside its heading. It continues below its own beginning.

    Where that is narrow, it continues further left.
    """
    if width is None or len(heading) + len(text) <= width:
        return f"{heading}{text}\n"
    indent = len(heading) if width - len(heading) >= width // 2 else 4
    return hanging(heading, text, indent, width) + "\n"


def cell_text(column: Column) -> Cell:
    """Return the function that makes the text of a column's cells."""
    if column.kind == "address":
        return _padded if column.width >= 16 else _hex
    if column.kind == "time":
        return _hex
    if column.kind == "size":
        return _size
    if column.kind == "share":
        return _share
    return _percent if column.kind == "percent" else _text


def _padded(value: Value) -> str:
    return f"{value:016x}" if isinstance(value, int) else _text(value)


def _hex(value: Value) -> str:
    return f"{value:x}" if isinstance(value, int) else _text(value)


def _prefixed(value: Value) -> str:
    return hex(value) if isinstance(value, int) else _text(value)


def _size(value: Value) -> str:
    return human_size(value) if isinstance(value, int) else _text(value)


def _percent(value: Value) -> str:
    return f"{value:.0f}%" if isinstance(value, (int, float)) else _text(value)


def _share(value: Value) -> str:
    return f"{value:.2f}%" if isinstance(value, (int, float)) else _text(value)


def _text(value: Value) -> str:
    if value is None:
        return _ABSENT
    return printable(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
