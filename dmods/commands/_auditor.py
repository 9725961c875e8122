"""Show why the auditor stopped the program."""

from __future__ import annotations

from typing import Optional

from dmods.commands._records import stack_values
from dmods.process.shapes import STACK_COLUMNS, stack_columns
from dmods.records.callers import Callers
from dmods.records.last_words import last_words_sentence, owner_of
from dmods.records.model import Records
from dmods.report import Column, Schema, Table

STOPPED = Schema(
    "stopped",
    "the misuse of a block for which the auditor stopped the program",
    (
        Column("kind", hidden=True, about="overrun, double-free or invalid-free"),
        Column("block", "address", hidden=True, null="no block is known there"),
        Column("pointer", "address", hidden=True, about="what was to be freed"),
        Column("requested", "bytes", hidden=True, null="it is not known"),
        Column("sentence"),
        Column("thread", "count", hidden=True, null="it is not known"),
        *STACK_COLUMNS,
        *stack_columns("alloc_", "who allocated the block is not known"),
    ),
    when="where the auditor stopped the program",
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
    return STOPPED.table([row], style="plain", title="The auditor stopped the program")
