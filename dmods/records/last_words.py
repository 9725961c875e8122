"""Why the auditor stopped the program: the misuse of a block that it found in a call of free() or realloc()."""

from __future__ import annotations

from typing import Optional

from dmods.base.regex import regex
from dmods.records.callers import Callers
from dmods.records.model import LastWords, Records, Stack

_AT = "0x[0-9a-f]{1,16}"
# audit/hooks/guards.c writes these.
_SAID = (
    (
        "overrun",
        regex(
            rf"overrun: the block at (?P<block>{_AT}) of (?P<size>[0-9]+) bytes was written beyond its end, "
            r"at offset (?P<offset>[0-9]+)"
        ),
    ),
    ("double-free", regex(rf"double free: the block at (?P<block>{_AT}) had been freed before")),
    (
        "invalid-free",
        regex(rf"invalid free: {_AT} (is no block|lies inside the block at (?P<block>{_AT}))"),
    ),
)


def parse_last_words(text: str, address: int, thread: int, stack: int) -> Optional[LastWords]:
    """Return what the auditor says of a misuse; None where its status says something else."""
    for kind, pattern in _SAID:
        found = pattern.fullmatch(text)
        if found is not None:
            parts = found.groupdict()
            block, size, offset = parts.get("block"), parts.get("size"), parts.get("offset")
            return LastWords(
                kind,
                text,
                address,
                int(block, 16) if block else None,
                int(size) if size else None,
                int(offset) if offset else None,
                thread,
                stack,
            )
    return None


def owner_of(records: Records, words: LastWords) -> Optional[Stack]:
    """Return the stack that allocated the block in question, where a record or the log still has it."""
    if words.block is None:
        return None
    record = records.of_block(words.block)
    if record is not None:
        return record.stack
    # The record was taken out before the block was looked at.
    last = records.last_of(words.block)
    if last is None or last.address != words.block:
        return None
    stack = last.alloc_stack if last.freed else last.stack
    return stack if stack.frames else None


def first_free(records: Records, words: LastWords) -> Optional[Stack]:
    """Return the stack that had freed the block before, for a block that was freed twice."""
    last = records.last_of(words.address) if words.kind == "double-free" else None
    return last.stack if last is not None and last.freed and last.address == words.address else None


def last_words_sentence(callers: Callers, records: Records, words: LastWords) -> str:
    """Return what the auditor said, with who called it and who had allocated the block."""
    stack = records.last_words_stack(words)
    by = f"; found when {callers.caller(stack).text} called free or realloc" if stack.frames else ""
    owner = owner_of(records, words)
    of = f"; the block was allocated by {callers.caller(owner).text}" if owner is not None else ""
    first = first_free(records, words)
    before = f" by {callers.caller(first).text}" if first is not None and first.frames else ""
    return f"{words.text}{before}{by}{of}"
