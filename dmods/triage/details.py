"""Tables and pictures of commands as parts of an HTML report: they are collapsed, and bounded in size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Optional

from dmods.base.dataclass import dataclass, field
from dmods.base.named_tuple import NamedTuple
from dmods.errors import DmodsError, UserError
from dmods.finding import CannotCheck
from dmods.output.text import cell_text, table_text
from dmods.report import Column, Report, Table, Value
from dmods.triage.runner import OutOfTime, time_box

ROWS = 200  # of a table; the command itself has all of them
_TABLES = 24  # of a command
_LINES = 400  # of a table that is shown as text
_WIDTH = 300  # characters of a cell or a line
_SECONDS = 120.0  # for one part
_COUNTED = 1_000_000  # rows that are counted beyond those that are shown
_NUMBERS = ("bytes", "count", "size", "percent", "share", "time", "address")
# Columns that hold what the program wrote: its strings, and the names that it gave to threads.
_CONTENTS = frozenset({"looks_like", "thread_name", "content"})


class Heading(NamedTuple):
    """The heading of a column. ``number``: its cells are sorted by value."""

    name: str
    number: bool


class Cell(NamedTuple):
    """A cell as text, and the value by which it is sorted."""

    text: str
    value: Optional[float]


@dataclass(frozen=True)
class Grid:
    """A table with headings. ``more`` says how many rows are not shown, or is ""."""

    title: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    more: str = ""
    footer: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """A table as lines of text."""

    title: str
    text: str


@dataclass(frozen=True)
class Detail:
    """One part of the report: what a command says. ``command`` is what to type for all of it.

    ``picture`` is markup of our own. ``why`` says in one line why the part is not there, or is "".
    """

    title: str
    command: str
    grids: Sequence[Grid] = ()
    texts: Sequence[Lines] = ()
    notes: Sequence[str] = ()
    picture: str = ""
    why: str = ""


@dataclass(frozen=True)
class Part:
    """One part of the details. ``make`` returns the report of a command, or the markup of a picture, or None."""

    title: str
    command: str
    make: Callable[[], object]
    wanted: Callable[[], bool] = field(default=lambda: True)


def details(parts: Iterable[Part], private: bool, seconds: Optional[float] = None) -> Iterator[Detail]:
    """Yield the parts that have something to say. Each has its own time. ``private``: no contents of memory."""
    for part in parts:
        try:
            with time_box(min(seconds or _SECONDS, _SECONDS)):
                made = part.make() if part.wanted() else None
                if isinstance(made, Report):
                    found = _of_report(part, made, private)
                else:
                    found = Detail(part.title, part.command, picture=made) if isinstance(made, str) else None
        except OutOfTime:
            found = Detail(part.title, part.command, why="it took too long; the command itself has no limit")
        except CannotCheck as lacking:
            found = Detail(part.title, part.command, why=lacking.why)
        except UserError as error:
            found = Detail(part.title, part.command, why=error.what)
        except DmodsError as error:
            found = Detail(part.title, part.command, why=str(error))
        if found is not None:
            yield found


def _of_report(part: Part, report: Report, private: bool) -> Optional[Detail]:
    """Return the tables of a report; None where it has no row."""
    grids, texts = [], []
    for table in [table for table in report.tables if table.only != "json"][:_TABLES]:
        if table.style == "grid" and not table.fold:
            grid = _grid(table, private)
            if grid.rows:
                grids.append(grid)
        else:
            text = _lines(table)
            if text.text:
                texts.append(text)
    if not grids and not texts:
        return None
    return Detail(part.title, part.command, grids, texts, list(report.notes))


def _grid(table: Table, private: bool) -> Grid:
    shown = [
        (index, column, cell_text(column))
        for index, column in enumerate(table.columns)
        if not column.hidden and column.name and not (private and column.name in _CONTENTS)
    ]
    walker = iter(table.rows)
    rows = [[_cell(column, text, row[index]) for index, column, text in shown] for row in islice(walker, ROWS)]
    left = sum(1 for _row in islice(walker, _COUNTED))
    more = f"{left:,} more rows" if left < _COUNTED else f"more than {left:,} more rows"
    headings = [Heading(column.heading, column.kind in _NUMBERS) for _index, column, _text in shown]
    footer = [line for line in table.footer if line.strip("-")]
    return Grid(table.title, headings, rows, more if left else "", footer)


def _cell(column: Column, text: Callable[[Value], str], value: Value) -> Cell:
    number = value if isinstance(value, (int, float)) and column.kind in _NUMBERS else None
    if number is None and column.kind in _NUMBERS:
        number = -1  # what is not known comes first
    shown = f"{value:,}" if isinstance(value, int) and column.kind in ("bytes", "count") else text(_cut(value))
    return Cell(shown, number)


def _lines(table: Table) -> Lines:
    walker = iter(table.rows)
    rows = [[_cut(value) for value in row] for row in islice(walker, _LINES)]
    left = sum(1 for _row in islice(walker, _COUNTED))
    text = "".join(table_text(Table(table.name, table.columns, rows, table.style, indent=table.indent), str))
    more = f"... {left:,} more lines" if left else ""
    return Lines(table.title, (text + more).strip("\n"))


def _cut(value: Value) -> Value:
    """Return the value; of a long text its beginning. It is cut before it is escaped, which takes longer."""
    return f"{value[:_WIDTH]}..." if isinstance(value, str) and len(value) > _WIDTH else value
