"""What a command gives back: values, never text that is already laid out (``dmods.render`` does that)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional, Union

Value = Union[int, float, str, None]


@dataclass(frozen=True)
class Column:
    """A column: ``kind`` tells the renderer what the integers are.

    kinds: "text", "address" (hex; "0x..." in JSON), "bytes", "count", "percent" (a float, 0..100), "time" (ns; hex in
    text, as mdb shows timestamps).
    ``width`` is a least width, for the layouts that mdb's users know by heart. A column without a name is an empty
    place in text.
    """

    name: str
    kind: str = "text"
    width: int = 0
    title: str = ""  # what text output shows above it; ``name`` by default
    hidden: bool = False  # in JSON only
    rule: int = 0  # dashes below the heading, as ::memstat has; any column's make a line of them

    @property
    def heading(self) -> str:
        return self.title or self.name.upper()


@dataclass
class Table:
    """Rows as tuples in the columns' order. ``rows`` may be any iterable: a walker's is consumed as it is printed.

    style: "grid" (headings and aligned columns), "plain" (no headings: one row a line, cells separated by a space),
    "record" (one "heading: value" line per cell; for the details of one thing), "advice" (rows of what, found and help,
    which has a line of its own where there is any).
    ``lines`` are the rows of a plain table as text, many lines in each string: for walks of millions, made faster than
    row by row. JSON is made from ``rows``.
    ``footer`` lines follow the rows in text only (what they say is in the report's totals for JSON).
    In text, too: ``fold`` columns of a grid stand on one line, the others on lines below it, as in mdb's two-line
    heads; ``indent`` spaces stand before each line of a plain table; a ``joined`` one follows the one before without a
    blank line.
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


@dataclass
class Report:
    """Tables in order, notes (to stderr, and "notes" in JSON) and totals.

    ``status`` is the exit status of the standalone form: 0 done, 1 cannot, 3 ``findleaks --fail-on-leak``.
    """

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    totals: dict[str, Value] = field(default_factory=dict)
    status: int = 0
