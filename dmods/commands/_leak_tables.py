"""The tables of findleaks: groups of leaks, their sums and their records, of a process or a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional, Protocol

from dmods.base.dataclass import dataclass, replace
from dmods.base.sizes import human_size
from dmods.commands._records import SOURCE
from dmods.heap.verdict import NO_VERDICT
from dmods.process.shapes import STACK_COLUMNS
from dmods.report import Column, Report, Schema, Table, Value

MOST_DETAILS = 32  # searching all memory for pointers to a representative takes time
LEAKED_STATUS = 3  # of --fail-on-leak
_RULE = "-" * 72

# mdb's layout: see the libumem tutorial. Further columns stand to the right of mdb's.
_KEEPS = (
    Column("lost", "size", width=6, about="the leaked bytes and the bytes that they keep alive"),
    Column("keeps", width=0, title="KEEPS ALIVE", about="kept_count and kept_bytes in words, or empty"),
    Column("bytes", "bytes", hidden=True, about="of the leaked blocks"),
    Column("kept_count", "count", hidden=True, about="what the leaked blocks keep alive"),
    Column("kept_bytes", "bytes", hidden=True, about="what the leaked blocks keep alive"),
)
_LEAKED = Column("leaked", "count", width=7, about="how many blocks")
_BUFFER = Column(
    "buffer", "address", width=17, about="the block that stands for the others: the oldest where that is known"
)
# Where nothing is recorded, the type or the shape tells leaks of one size apart.
_TYPE = Column("type", null="neither type nor shape is known", when="for the core of a process")
_PLAIN_COLUMNS = (
    Column("cache", width=16, about="the allocator and the usable bytes of a block"),
    _LEAKED,
    _BUFFER,
    Column("caller", width=6),
    SOURCE,
    *_KEEPS,
)
_GROUP = "leaked blocks of one cache that one stack allocated, or of one type where nothing is recorded"
_PLAIN = Schema("leaks", _GROUP, (*_PLAIN_COLUMNS, _TYPE), when="where nothing is recorded, or nothing leaked")
_UNRECORDED = Schema(
    "unrecorded", "leaked blocks of one cache without a record", _PLAIN.columns, when="where others have records"
)
_RECORDED = Schema(
    "leaks",
    _GROUP,
    (
        Column("cache", width=16, about="the allocator and the usable bytes of a block"),
        _LEAKED,
        Column("bufctl", "address", width=17, about="the record of the block that stands for the others"),
        Column("caller"),
        SOURCE,
        *_KEEPS,
        replace(_BUFFER, hidden=True),
        Column("requested", "bytes", hidden=True, null="it is not known"),
        *STACK_COLUMNS,
    ),
    when="where allocations were recorded",
)
_OVERSIZED = Schema(
    "oversized",
    "leaked blocks of one size that have mappings of their own",
    (
        Column("size", "bytes", width=16, title="BYTES"),
        _LEAKED,
        Column("vmem_seg", "address", width=17, about="the record; the block itself where nothing is recorded"),
        Column("caller", width=6),
        SOURCE,
        *_KEEPS,
        *_RECORDED.columns[-4:],
        _TYPE,
    ),
    when="where there are some",
)
#: The tables of groups. A kernel's have no types.
GROUPS = (_RECORDED, _PLAIN, _UNRECORDED, _OVERSIZED)
_NO_VERDICT = "no verdict is possible"
_SUMS = tuple(
    Column(f"{which}_{what}", "count" if what == "count" else "bytes", null=_NO_VERDICT)
    for which in ("direct", "indirect", "leaked")
    for what in ("count", "bytes")
)
TOTALS = (
    *_SUMS,
    *(replace(column, name=f"all_{column.name}", when="with ADDR or FUNCTION: all leaks") for column in _SUMS),
)


class Sums(Protocol):
    """The totals of a search for leaks."""

    @property
    def direct_count(self) -> int:
        """Return the number of direct leaks."""

    @property
    def direct_bytes(self) -> int:
        """Return their bytes."""

    @property
    def indirect_count(self) -> int:
        """Return how many others they keep alive."""

    @property
    def indirect_bytes(self) -> int:
        """Return the bytes of those."""


@dataclass(frozen=True)
class Shown:
    """The totals of the groups that the user asked for."""

    direct_count: int = 0
    direct_bytes: int = 0
    indirect_count: int = 0
    indirect_bytes: int = 0


class Group(Protocol):
    """Direct leaks of one kind, and what they keep alive."""

    @property
    def count(self) -> int:
        """Return how many there are."""

    @property
    def size(self) -> int:
        """Return the bytes of each."""

    @property
    def kept_count(self) -> int:
        """Return how many other blocks they keep alive."""

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of those."""


def sums_of(groups: Iterable[Group]) -> Shown:
    """Return the totals of these groups."""
    known = list(groups)
    return Shown(
        sum(group.count for group in known),
        sum(group.count * group.size for group in known),
        sum(group.kept_count for group in known),
        sum(group.kept_bytes for group in known),
    )


@dataclass(frozen=True)
class LeakRow:
    """A group of direct leaks, as a row.

    ``first`` is the address of its representative. ``record`` is the address of what was recorded of it, None where
    nothing was. Then ``requested`` and ``stack`` (the cells of STACK_COLUMNS) are part of the record. A ``single`` leak
    has a mapping of its own. ``kind`` is the type or the shape.
    """

    cache: str
    size: int
    count: int
    kept_count: int
    kept_bytes: int
    first: int
    record: Optional[int]
    caller: str
    source: Optional[str]
    requested: Optional[int] = None
    stack: tuple[Value, Value] = (None, None)
    single: bool = False
    kind: Optional[str] = None

    @property
    def lost(self) -> int:
        """Return the bytes that leaked, plus the bytes that they keep alive."""
        return self.count * self.size + self.kept_bytes

    @property
    def cells(self) -> tuple[Value, ...]:
        """Return the cells from "leaked" to "kept_bytes"."""
        place = self.first if self.record is None else self.record
        keeps = f"{_buffers(self.kept_count)}, {self.kept_bytes} bytes" if self.kept_count else ""
        kept = (keeps, self.count * self.size, self.kept_count, self.kept_bytes)
        return self.count, place, self.caller, self.source, self.lost, *kept

    @property
    def recorded(self) -> tuple[Value, ...]:
        """Return the cells of what was recorded."""
        return self.first, self.requested, *self.stack


def tables_of_groups(rows: Sequence[LeakRow], lines: bool, typed: bool) -> list[tuple[int, Table]]:
    """Return (the bytes lost in its first row, a table) of leaks with a record, without one, and of single ones.

    There is at least one table. With ``lines`` there are source lines. ``typed``: leaks may have a type.
    """
    recorded = [row for row in rows if not row.single and row.record is not None]
    unknown = [row for row in rows if not row.single and row.record is None]
    large = [row for row in rows if row.single]
    shown = {"keeps": any(row.kept_count for row in rows), SOURCE.name: lines, "type": any(row.kind for row in rows)}

    def columns(wanted: Sequence[Column]) -> list[Column]:
        """KEEPS ALIVE and TYPE are only shown where they say something."""
        return [replace(column, hidden=not shown.get(column.name, not column.hidden)) for column in wanted]

    tables: list[tuple[int, Table]] = []
    if recorded:
        cells = [(row.cache, *row.cells, *row.recorded) for row in recorded]
        tables.append((recorded[0].lost, _RECORDED.table(cells, columns(_RECORDED.columns))))
    if unknown or not (recorded or large):
        kinds = [(row.kind,) if typed else () for row in unknown]
        plain: list[tuple[Value, ...]] = [(row.cache, *row.cells, *kind) for row, kind in zip(unknown, kinds)]
        schema = _UNRECORDED if recorded else _PLAIN
        wanted = schema.columns if typed else _PLAIN_COLUMNS
        tables.append((unknown[0].lost if unknown else 0, schema.table(plain, columns(wanted))))
    if large:
        own: list[tuple[Value, ...]] = [(row.size, *row.cells, *row.recorded, row.kind) for row in large]
        tables.append((large[0].lost, _OVERSIZED.table(own, columns(_OVERSIZED.columns))))
    return tables


def footer(sums: Sums, whole: Optional[Sums] = None) -> list[str]:
    """Return the last lines of the listing: what leaked, what that keeps alive, and the whole loss.

    Where only some groups were asked for, ``whole`` has the totals of all.
    """
    lines = [_RULE, _sum("Total", sums.direct_count, sums.direct_bytes)]
    if sums.indirect_count:
        lines.append(_sum("Kept alive", sums.indirect_count, sums.indirect_bytes) + " (indirect: -i lists them)")
        size = sums.direct_bytes + sums.indirect_bytes
        lost = _sum("Lost", sums.direct_count + sums.indirect_count, size)
        lines.append(lost if size < 1024 else f"{lost} ({human_size(size)})")
    if whole is not None:
        lines.append(_sum("All leaks", whole.direct_count, whole.direct_bytes))
    return lines


def totals(sums: Sums, whole: Optional[Sums] = None) -> dict[str, Value]:
    """Return the totals for --json. Where only some groups were asked for, ``whole`` has the totals of all."""
    if whole is not None:
        return {**totals(sums), **{f"all_{name}": value for name, value in totals(whole).items()}}
    return {
        "direct_count": sums.direct_count,
        "direct_bytes": sums.direct_bytes,
        "indirect_count": sums.indirect_count,
        "indirect_bytes": sums.indirect_bytes,
        "leaked_count": sums.direct_count + sums.indirect_count,
        "leaked_bytes": sums.direct_bytes + sums.indirect_bytes,
    }


def smaller_groups(lost: Sequence[int], shown: int) -> Iterator[str]:
    """Yield a note on the groups that --top leaves out. ``lost`` has the bytes of each group."""
    if shown < len(lost):
        yield f"{len(lost) - shown} smaller groups, {sum(lost[shown:])} bytes, are not shown (--top)"


def tables_of_records(groups: Iterable[tuple[str, int, int]], audited: Iterator[Table]) -> Iterator[Table]:
    """Yield the tables of bufctl_audit, one for JSON and then two for each group: (cache, leaks, bytes of each)."""
    known = list(groups)
    if known:
        yield next(audited)
    for (cache, count, size), head, stack in zip(known, audited, audited):
        head.title = f"{cache} leak: {_buffers(count)}, {size} bytes each, {count * size} bytes total"
        yield head
        yield stack


def set_status(report: Report, fail_on_leak: bool, direct_count: int) -> None:
    """Set the exit status of findleaks."""
    if report.verdict is not None and not report.verdict.possible:
        report.status = NO_VERDICT
    elif fail_on_leak and direct_count:
        report.status = LEAKED_STATUS


def _sum(label: str, count: int, size: int) -> str:
    return f"{label:>16} {count:7} {'buffer' if count == 1 else 'buffers'}, {size} bytes"


def _buffers(count: int) -> str:
    return f"{count} {'buffer' if count == 1 else 'buffers'}"
