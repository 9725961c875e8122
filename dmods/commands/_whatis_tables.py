"""The tables of whatis that a process and a kernel share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.hexdump import ROW, hex_rows
from dmods.report import Column, Table, Value

DUMPED = 64  # bytes shown

_ANSWER = (Column("address", "address", hidden=True), Column("kind", hidden=True), Column("sentence"))
_BYTES = (Column("address", "address", width=16), Column("bytes"), Column("text"))
_HOLDERS = (
    Column("at", "address", width=16),
    Column("to", "address", title="TO +"),
    Column("register", hidden=True),
    Column("where"),
    Column("note"),
    Column("holder", hidden=True),
)
_NOTE = 4


def answer_table(address: int, sentences: Sequence[tuple[str, str]]) -> Table:
    """Return what the address is: (kind, sentence) of each thing that it is."""
    rows: list[tuple[Value, ...]] = [(address, kind, text) for kind, text in sentences]
    return Table("whatis", _ANSWER, rows, style="plain")


def bytes_table(read: Callable[[int, int], bytes], address: int, end: Optional[int], size: Optional[int]) -> Table:
    """Return the bytes from the row of 16 that the address lies in, as mdb's ::dump does.

    They end at ``end`` (of the block), unless the user asks for a ``size``.
    """
    start = address // ROW * ROW
    if size is None:
        size = DUMPED if end is None else min(DUMPED, end - start)
    return Table("bytes", _BYTES, hex_rows(read, start, size, group=4), style="plain", title=f"bytes from {start:#x}")


def holders_table(rows: Sequence[tuple[Value, ...]]) -> Table:
    """Return what points to it: (at, to, register, where, note, holder). Notes are shown where there are some."""
    if not rows:
        return Table("pointed_to_by", (), [], title="nothing points to it", style="plain")
    noted = any(row[_NOTE] for row in rows)
    columns = [replace(each, hidden=each.hidden or (each.name == "note" and not noted)) for each in _HOLDERS]
    return Table("pointed_to_by", columns, rows, title="pointed to by")
