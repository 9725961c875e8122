"""The tables of whatis that a process and a kernel share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from dmods.base.dataclass import replace
from dmods.base.hexdump import ROW, hex_rows
from dmods.process.shapes import HOLDER
from dmods.report import Column, Schema, Table, Value

DUMPED = 64  # bytes shown

ANSWER = Schema(
    "whatis",
    "something that the address is",
    (
        Column("address", "address", hidden=True, when="not for a per-CPU variable"),
        Column("kind", hidden=True),
        Column("sentence"),
    ),
)
BYTES = Schema(
    "bytes",
    "16 bytes from the address on",
    (
        Column("address", "address", width=16),
        Column("bytes", about="hexadecimal digits"),
        Column("text", about="as ASCII"),
    ),
    when="where the dump has them",
)
HOLDERS = Schema(
    "pointed_to_by",
    "a word of memory, or a register, that points there",
    (
        Column("at", "address", width=16, null="it is a register"),
        Column("to", "address", title="TO +", about="how far into the block it points"),
        Column("register", hidden=True, null="it is a word of memory"),
        Column("where"),
        Column("note", about="in words, or empty"),
        Column("holder", "object", hidden=True, fields=HOLDER),
    ),
    when="where the address is mapped",
)
_NOTE = 4


def answer_table(address: int, sentences: Sequence[tuple[str, str]]) -> Table:
    """Return what the address is: (kind, sentence) of each thing that it is."""
    rows: list[tuple[Value, ...]] = [(address, kind, text) for kind, text in sentences]
    return ANSWER.table(rows, style="plain")


def bytes_table(read: Callable[[int, int], bytes], address: int, end: Optional[int], size: Optional[int]) -> Table:
    """Return the bytes from the row of 16 that the address lies in, as mdb's ::dump does.

    They end at ``end`` (of the block), unless the user asks for a ``size``.
    """
    start = address // ROW * ROW
    if size is None:
        size = DUMPED if end is None else min(DUMPED, end - start)
    return BYTES.table(hex_rows(read, start, size, group=4), style="plain", title=f"bytes from {start:#x}")


def holders_table(rows: Sequence[tuple[Value, ...]]) -> Table:
    """Return what points to it: (at, to, register, where, note, holder). Notes are shown where there are some."""
    if not rows:
        return HOLDERS.table([], (), title="nothing points to it", style="plain")
    noted = any(row[_NOTE] for row in rows)
    columns = [replace(each, hidden=each.hidden or (each.name == "note" and not noted)) for each in HOLDERS.columns]
    return HOLDERS.table(rows, columns, title="pointed to by")
