"""The table of the memory of a process by use, which several commands show."""

from __future__ import annotations

from dmods.heap.ledger import CODE, NOT_COUNTED, Ledger, Use
from dmods.report import Column, Schema, Table, Value

USES = Schema(
    "uses",
    "a use of memory",
    (
        Column("use", width=24),
        Column("bytes", "bytes", width=16),
        Column("touched", "bytes", width=16, null="it is code: pages that were only read are the file's"),
        Column("untouched", "bytes", width=16, title="NEVER TOUCHED", null="it is not counted for this use"),
    ),
)


def uses_table(ledger: Ledger) -> Table:
    """Return the table. Its footer has the memory of the process."""
    rows = [(ledger.shown(use), use.bytes, *_touched(use)) for use in ledger.uses]
    footer = [f"The process has touched {ledger.touched} bytes, code left out"]
    if ledger.missing:
        footer.append(
            f"The dump lacks {ledger.missing} bytes: they stand under NEVER TOUCHED, and may have been touched"
        )
    return USES.table(rows, footer=footer, title="Memory of the process by use")


def _touched(use: Use) -> tuple[Value, Value]:
    """Return the last two cells. The pages of files that a process only read are the files'."""
    return (None if use.name == CODE else use.touched), (None if use.name in NOT_COUNTED else use.untouched)
