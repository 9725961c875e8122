"""The tables of `maps --leaked`: mappings that nothing points to, and who made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Optional

from dmods.commands._records import stack_table, stack_values
from dmods.heap.lost_mappings import LostMappings
from dmods.process.shapes import stack_columns
from dmods.process.untouched import untouched
from dmods.records.callers import Callers
from dmods.records.mapped import HOW_TO_RECORD, Maker, makers, recorded_maps
from dmods.report import Column, Schema, Table, Value
from dmods.target import AddressRange, Target

_RANGE = (
    Column("start", "address", width=16),
    Column("end", "address", width=16),
    Column("bytes", "bytes", width=14),
    Column("touched", "bytes", width=14, null="it is a mapping of a file in a core"),
)
_PATH = Column("path", null="the mapping is anonymous", when="where a leaked mapping is of a file")
_MAKER = (
    Column("call", title="BY", null="nobody recorded who made it", when="where --audit audit,maps recorded it"),
    Column("caller", null="nobody recorded who made it", when="where --audit audit,maps recorded it"),
    *stack_columns(null="nobody recorded who made it", when="where --audit audit,maps recorded it"),
)
_LEAKED = Schema(
    "leaked",
    "a mapping that nothing points to",
    (*_RANGE, _PATH, *_MAKER),
    when="with --leaked, where a verdict is possible",
)
_BY_CALLER = Schema(
    "makers",
    "a call that made leaked mappings, with all that it made",
    (
        Column("count", "count", width=8),
        Column("bytes", "bytes", width=14),
        Column("call", title="BY"),
        Column("caller"),
    ),
    when="with --leaked, where --audit audit,maps recorded it",
)
_DOUBTFUL = Schema(
    "doubtful",
    "a mapping without a known pointer and without a verdict",
    (*_RANGE[:3], Column("why")),
    when="with --leaked, where there are some",
)
LOST_TABLES = (_LEAKED, _DOUBTFUL, _BY_CALLER)
_MOST_STACKS = 8


def lost_notes(target: Target, found: LostMappings) -> Iterator[str]:
    """Yield the notes on the mappings that nothing points to."""
    if not found.lost:
        return
    recorded = recorded_maps(target)
    if recorded is None:
        yield f"nobody recorded who made the leaked mappings: {HOW_TO_RECORD}"
    else:
        yield from recorded.recording.notes


def lost_tables(target: Target, found: LostMappings) -> Iterator[Table]:
    """Yield the leaked mappings, those without a verdict, and who made the leaked ones, with the stacks."""
    recorded, callers, never = recorded_maps(target) is not None, Callers(target), untouched(target)
    rows: list[tuple[Value, ...]] = []
    count: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Maker] = {}
    files = any(each.path is not None for each in found.lost)
    for each in found.lost:
        # A core lacks what a process only read of a file.
        touched = None if each.path and target.path else each.size - never.within(list(each.parts))
        row: tuple[Value, ...] = (each.start, each.end, each.size, touched, *((each.path,) if files else ()))
        made = _maker(target, each.start, each.end) if recorded else None
        if made is not None:
            key = made.call, callers.caller(made.stack).text
            count[key] += 1
            size[key] += each.size
            first.setdefault(key, made)
            row += (*key, *stack_values(callers, made.stack))
        elif recorded:
            row += (None,) * len(_MAKER)
        rows.append(row)
    if found.verdict.possible:
        title = "Mappings that nothing points to" if rows else "No mapping was found that nothing points to"
        footer = [f"{len(rows)} mappings of {found.bytes} bytes"] if rows else []
        columns = (*_RANGE, *((_PATH,) if files else ()), *(_MAKER if recorded else ()))
        yield _LEAKED.table(rows, columns, title=title, footer=footer)
    if found.doubtful:
        doubts = [(each.mapping.start, each.mapping.end, each.mapping.size, each.why) for each in found.doubtful]
        yield _DOUBTFUL.table(doubts, title="Mappings without a known pointer, and without a verdict")
    if first:
        keys = [key for key, _bytes in size.most_common()]
        yield _BY_CALLER.table([(count[key], size[key], *key) for key in keys], title="Who made the leaked ones")
        for number, key in enumerate(keys[:_MOST_STACKS], 1):
            title = f"{count[key]} mappings of {size[key]} bytes by {key[0]} in {key[1]}"
            yield stack_table(callers, first[key].stack, f"stack {number}", title=title)


def _maker(target: Target, start: int, end: int) -> Optional[Maker]:
    made = makers(target, AddressRange(start, end, "rw-"))
    return made[0] if made else None
