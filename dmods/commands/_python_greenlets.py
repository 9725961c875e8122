"""The part of `pystack --suspended` that shows the greenlets that wait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

from dmods.commands._stacks import python_frame_value
from dmods.heap.heap import ProcessHeap
from dmods.heap.python_objects import PythonObjects
from dmods.process.shapes import PYTHON_FRAME
from dmods.report import Address, Column, Report, Schema, Table, Value
from dmods.runtimes.python.greenlets import Greenlet, greenlet_at, is_greenlet_type
from dmods.runtimes.python.runtime import Python

_MOST = 1_000_000  # greenlets
_MOST_SHOWN = 1000  # tables of text: JSON has all groups
_NAMED = 3  # greenlets of a group that text names

GREENLETS = Schema(
    "greenlets",
    "a greenlet that waits",
    (
        Column("greenlet", "address"),
        Column("type"),
        Column("frames", "objects", hidden=True, fields=PYTHON_FRAME),
        Column("problem", null="its frames are whole", about="why there are no more frames"),
    ),
    when="with --suspended",
)
GROUPS = Schema(
    "greenlet_groups",
    "greenlets of one type that wait at the same lines",
    (
        Column("count", "count"),
        Column("type"),
        Column("greenlets", "addresses", hidden=True),
        Column("frames", "objects", hidden=True, fields=PYTHON_FRAME),
        Column("problem", null="the frames are whole", about="why there are no more frames"),
    ),
    when="with --suspended",
)
FRAMES = (Column("where"), Column("function"))

_Key = tuple[str, Optional[str], tuple[tuple[str, Optional[int], str], ...]]  # type, problem, frames


def add_greenlets(report: Report, python: Python, heap: ProcessHeap, memory: PythonObjects, limit: int) -> int:
    """Add the greenlets that wait to the report, those that wait at the same lines once, with at most ``limit`` frames.

    Returns how many wait.
    """
    types = [row[0] for row in memory.census()[0] if is_greenlet_type(python, python.objects.type_at(row[0]))]
    found = memory.census(types, _MOST)[1] if types else []
    if len(found) >= _MOST:
        report.notes.append(f"greenlets after the first {_MOST} are not looked at")
    waiting = [one for row in found if (one := greenlet_at(python, row[0], partial(room, heap))) is not None]
    groups = group_greenlets(waiting)
    report.tables += [_table(group, limit) for group in groups[:_MOST_SHOWN]]
    if len(groups) > _MOST_SHOWN:
        left = sum(map(len, groups[_MOST_SHOWN:]))
        report.notes.append(f"{left} more greenlets in {len(groups) - _MOST_SHOWN} groups are only in JSON")
    rows = [(one.address, one.type, partial(_values, one.frames[:limit]), one.problem) for one in waiting]
    report.tables.append(GREENLETS.table(rows, only="json"))
    report.tables.append(
        GROUPS.table([_group_row(group, limit) for group in groups], only="json"),
    )
    return len(waiting)


def room(heap: ProcessHeap, address: int) -> int:
    """Return how many bytes there are from an address to the end of its block; 0 where no block is."""
    block = heap.index.block_at(address)
    return block.address + block.size - address if block is not None else 0


def group_greenlets(greenlets: Sequence[Greenlet]) -> list[list[Greenlet]]:
    """Return the greenlets of one type that wait at the same lines, the largest groups first."""
    groups: dict[_Key, list[Greenlet]] = {}
    for one in greenlets:
        places = tuple((frame.code.file, frame.line, frame.code.qualname) for frame in one.frames)
        groups.setdefault((one.type, one.problem, places), []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def _group_row(group: Sequence[Greenlet], limit: int) -> tuple[Value, ...]:
    first = group[0]
    addresses = partial(_addresses, group)
    return len(group), first.type, addresses, partial(_values, first.frames[:limit]), first.problem


def _addresses(group: Sequence[Greenlet]) -> list[Address]:
    return [Address(one.address) for one in group]


def _table(group: Sequence[Greenlet], limit: int) -> Table:
    """Return the greenlets of a group, and the frames that all of them have."""
    first = group[0]
    rows = [(f"{frame.code.file}:{frame.line or '?'}", frame.code.qualname) for frame in first.frames[:limit]]
    left = len(first.frames) - len(rows)
    footer = [f"({left} more frames: --limit)"] if left else []
    footer += [f"(no more frames: {first.problem})"] if first.problem is not None else []
    some = ", ".join(f"{one.address:#x}" for one in group[:_NAMED])
    more = f" and {len(group) - _NAMED:,} more" if len(group) > _NAMED else ""
    title = f"{len(group):,} greenlets of type {first.type} ({some}{more}) wait"
    title = title if len(group) > 1 else f"greenlet {first.address:#x} of type {first.type} waits"
    name = f"greenlet {first.address:#x}"
    return Table(name, FRAMES, rows, style="plain", title=title, footer=footer, only="text")


def _values(frames: Sequence[Any]) -> list[dict[str, Any]]:
    return [python_frame_value(frame) for frame in frames]
