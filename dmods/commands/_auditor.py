"""Show why the auditor stopped the program."""

from __future__ import annotations

from typing import Optional

from dmods.commands._records import stack_values
from dmods.process.shapes import STACK_COLUMNS
from dmods.records.callers import Callers
from dmods.records.last_words import last_words_sentence, owner_of
from dmods.records.model import Records
from dmods.report import Column, Table

STOPPED = (
    Column("kind", hidden=True),
    Column("block", "address", hidden=True),
    Column("pointer", "address", hidden=True),
    Column("requested", "bytes", hidden=True),
    Column("sentence"),
    Column("thread", "count", hidden=True),
    *STACK_COLUMNS,
    Column("alloc_stack", hidden=True),
    Column("alloc_truncated", hidden=True),
)


def stopped_table(callers: Callers, records: Records) -> Optional[Table]:
    """Return the misuse of a block for which the auditor stopped the program, or None."""
    words = records.last_words
    if words is None:
        return None
    owner = owner_of(records, words)
    row = (
        words.kind,
        words.block,
        words.address,
        words.requested,
        last_words_sentence(callers, records, words),
        records.last_words_thread(words).tid,
        *stack_values(callers, records.last_words_stack(words)),
        *(stack_values(callers, owner) if owner is not None else (None, None)),
    )
    return Table("stopped", STOPPED, [row], style="plain", title="The auditor stopped the program")
