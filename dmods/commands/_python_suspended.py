"""The part of `pystack` that shows the generators, coroutines and greenlets that wait outside of asyncio's tasks."""

from __future__ import annotations

from collections import Counter

from dmods.commands._python_greenlets import add_greenlets
from dmods.commands._python_tasks import tasks_in
from dmods.heap.heap import find_heap
from dmods.heap.python_objects import objects_in
from dmods.report import Column, Report, Schema
from dmods.runtimes.python.coroutines import KINDS, RUNS, waiting_at
from dmods.runtimes.python.runtime import Python
from dmods.target import Target

_MOST = 1_000_000  # generators and coroutines

PLACES = Schema(
    "suspended",
    "a line where generators or coroutines stand that are in no task",
    (
        Column("count", "count", width=8),
        Column("kind"),
        Column("state", about="whether they have begun"),
        Column("where"),
        Column("function"),
        Column("example", "address", width=16, about="one of them"),
        Column("file", hidden=True),
        Column("line", "count", hidden=True, null="it is not known"),
    ),
    when="with --suspended",
)

_Place = tuple[str, str, str, int, str]  # kind, state, file, line (0: not known), function


def suspended_report(target: Target, python: Python, limit: int) -> Report:
    """Return how many generators and coroutines stand at each line, the most first; then the greenlets that wait, with
    at most ``limit`` frames of each.
    """
    heap = find_heap(target)
    memory = objects_in(heap, python.layout.version[1])
    types = [row[0] for row in memory.census()[0] if _is_one(python, row[0])]
    found = memory.census(types, _MOST)[1] if types else []
    tasks, _ = tasks_in(python, memory)
    awaited = {frame.address for task in tasks for frame in task.chain.frames}
    counts: Counter[_Place] = Counter()
    examples: dict[_Place, int] = {}
    left_out = 0
    for address, *_row in found:
        one = waiting_at(python, address)
        if one is None or one.state == RUNS:
            continue
        if one.frame.address in awaited:
            left_out += 1
            continue
        place = (one.kind, one.state, one.frame.code.file, one.frame.line or 0, one.frame.code.qualname)
        counts[place] += 1
        examples.setdefault(place, address)
    report = Report(notes=[*python.notes, *heap.notes])
    if len(found) >= _MOST:
        report.notes.append(f"generators and coroutines after the first {_MOST} are not looked at")
    if left_out:
        report.notes.append(f"{left_out} more stand in tasks of asyncio (pystack --tasks)")
    rows = [
        (
            count,
            place[0],
            place[1],
            f"{place[2]}:{place[3] or '?'}",
            place[4],
            examples[place],
            place[2],
            place[3] or None,
        )
        for place, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    ]
    report.tables.append(PLACES.table(rows))
    greenlets = add_greenlets(report, python, heap, memory, limit)
    report.totals = {
        "release": python.layout.name,
        "suspended": sum(counts.values()),
        "in_tasks": left_out,
        "greenlets": greenlets,
    }
    return report


def _is_one(python: Python, kind: int) -> bool:
    found = python.objects.type_at(kind)
    return found is not None and found.name in KINDS
