"""The answer of a command: values without layout. ``dmods.output.render`` lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Optional, Union

from dmods.base.dataclass import dataclass, field


class Address(int):
    """An address inside a structured value. JSON shows it as "0x..."."""


# A cell. Lists and mappings stand only in hidden columns, which only JSON shows: stacks, holders. In such a column a
# function without arguments makes the value when JSON asks for it. Text never needs the value.
Value = Union[int, float, str, None, Sequence[Any], Mapping[str, Any], Callable[[], Any]]


@dataclass(frozen=True)
class Column:
    """A column of a table. ``kind`` tells the renderer what the integers mean.

    The kinds are "text", "address" (hex; "0x..." in JSON), "bytes", "size" (bytes: 1.5M in text, exact in JSON),
    "count", "percent" (a float from 0 to 100), "share" (the same, with two decimals, as pprof has it) and "time" (ns;
    hex in text, as mdb shows timestamps).

    ``width`` is a least width: mdb's users know some layouts by heart. A column without a name is an empty place in
    text.
    """

    name: str
    kind: str = "text"
    width: int = 0
    title: str = ""  # the heading in text; ``name`` by default
    hidden: bool = False  # shown in JSON only
    rule: int = 0  # dashes below the heading, as ::memstat has; any column's make a line of them

    @property
    def heading(self) -> str:
        """Return the text above the column."""
        return self.title or self.name.upper()


@dataclass
class Table:
    """Rows as tuples in the order of the columns. ``rows`` may be any iterable; it is consumed while it is printed.

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
