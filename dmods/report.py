"""The answer of a command: values without layout. ``dmods.output.render`` lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Optional, Union

from dmods.base.dataclass import dataclass, field, replace


class Address(int):
    """An address inside a structured value. JSON shows it as "0x..."."""


# A cell. Lists and mappings stand only in hidden columns, which only JSON shows: stacks, holders. In such a column a
# function without arguments makes the value when JSON asks for it. Text never needs the value.
Value = Union[int, float, str, None, Sequence[Any], Mapping[str, Any], Callable[[], Any]]


@dataclass(frozen=True)
class Column:
    """A column of a table, or a key of an object. ``kind`` says what the values are, in text and in JSON.

    The kinds that text shows are "text", "address" (hex; "0x..." in JSON), "bytes", "size" (bytes: 1.5M in text, exact
    in JSON), "count", "percent" (a float from 0 to 100), "share" (the same, with two decimals, as pprof has it), "time"
    (ns; hex in text, as mdb shows timestamps), "seconds" and "hours". The other kinds are for JSON alone: "flag" (true
    or false), "ns", lists ("texts", "counts", "sizes", "addresses", "averages"), "object" and "objects" (their keys are
    in ``fields``), and objects whose keys are names that the dump gives ("named_counts", "named_addresses").

    ``width`` is a least width: mdb's users know some layouts by heart. A column without a name is an empty place in
    text.

    docs/JSON.md is made from the rest. ``null`` says where JSON has null: a column without it has none. ``when`` says
    where the column is there: without it, always. ``about`` says what the name does not. A name with a star stands for
    many columns, which the dump names.
    """

    name: str
    kind: str = "text"
    width: int = 0
    title: str = ""  # the heading in text; ``name`` by default
    hidden: bool = False  # shown in JSON only
    rule: int = 0  # dashes below the heading, as ::memstat has; any column's make a line of them
    null: str = ""
    when: str = ""
    about: str = ""
    fields: Optional[Schema] = None

    @property
    def heading(self) -> str:
        """Return the text above the column."""
        return self.title or self.name.upper()

    @property
    def is_words(self) -> bool:
        """Return whether text shows the values as words, which stand to the left."""
        return self.kind in ("text", "flag")


@dataclass(frozen=True)
class Schema:
    """The declaration of a table of JSON, or of an object in a cell: its name, what a row is, and its columns.

    A command makes each table from its schema, and lists its schemas (``Command.tables``). docs/JSON.md is made from
    them. ``when`` says where the table is there: without it, always.
    """

    name: str
    row: str
    columns: Sequence[Column]
    when: str = ""

    def table(
        self, rows: Iterable[Sequence[Value]], columns: Optional[Sequence[Column]] = None, **layout: Any
    ) -> Table:
        """Return the table of these rows, with all columns or with these. ``layout``: see Table."""
        return Table(self.name, self.columns if columns is None else columns, rows, **layout)

    def record(self, facts: Iterable[tuple[str, Value]], **layout: Any) -> Table:
        """Return a table of one row: these columns by their names, in this order. Text shows their names."""
        known = list(facts)
        columns = [self._column(name) for name, _value in known]
        shown = [replace(column, title=column.title or column.name) for column in columns]
        return self.table([tuple(value for _name, value in known)], shown, style="record", **layout)

    def _column(self, name: str) -> Column:
        """Return the column of that name. An undeclared one is text; tests find it."""
        own = next((column for column in self.columns if column.name == name), None)
        star = next((column for column in self.columns if "*" in column.name), Column(name))
        return own or replace(star, name=name)


@dataclass
class Table:
    """Rows as tuples in the order of the columns. ``rows`` may be any iterable; it is consumed while it is printed.

    A table that JSON has is made from a Schema. Only tables with ``only="text"`` are made without.

    ``style`` is one of these. "grid": headings and aligned columns. "plain": no headings, one row a line, cells
    separated by a space. "record": one "heading: value" line for each cell, for the details of one thing. "advice":
    rows of what, found and help; help has a line of its own.

    ``lines`` are the rows of a plain table as text, many lines in each string. They are faster than single rows in
    walks of millions. JSON is made from ``rows``.

    ``footer`` lines follow the rows in text only. JSON has the same figures in the report's totals.

    Text has these options. ``fold``: these columns of a grid stand on one line, the others on lines below it, as in
    mdb's two-line heads. ``indent``: so many spaces stand before each line of a plain table. ``joined``: no blank line
    before this table. ``only``: "text" or "json" for a table that only this form has. Text shows the stack of a record
    as a table; JSON shows it inside the record.
    """

    name: str
    columns: Sequence[Column]
    rows: Iterable[Sequence[Value]]
    style: str = "grid"
    title: str = ""
    footer: Sequence[str] = ()
    fold: int = 0
    indent: int = 0
    joined: bool = False
    lines: Optional[Iterable[str]] = None
    only: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict of a command that checks something: whether the check was possible.

    A result without findings means "clean" only where a verdict is possible. ``reason`` is one line. It says why no
    verdict is possible.
    """

    possible: bool
    reason: str = ""


@dataclass
class Report:
    """The answer of a command: tables in order, notes and totals. Notes go to stderr, and to "notes" in JSON.

    ``status`` is the exit status of the standalone form: 0 done, 1 cannot, 3 ``findleaks --fail-on-leak``, 4 no verdict
    is possible.

    ``verdict`` is for commands that check something. Text shows it on stdout only where no verdict is possible. JSON
    always shows it. ``for_scripts``: programs read the text of stdout line by line, so such words go to stderr.
    """

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    totals: dict[str, Value] = field(default_factory=dict)
    status: int = 0
    verdict: Optional[Verdict] = None
    for_scripts: bool = False
