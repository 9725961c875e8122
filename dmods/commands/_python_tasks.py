"""The part of `pystack` that shows the tasks of asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

from dmods.commands._stacks import python_frame_value
from dmods.heap.heap import find_heap
from dmods.heap.python_objects import PythonObjects, objects_in
from dmods.process.shapes import PYTHON_FRAME
from dmods.report import Address, Column, Report, Schema, Table, Value
from dmods.runtimes.python.coroutines import NEW, RUNS, WAITS
from dmods.runtimes.python.runtime import Python, PythonFrame
from dmods.runtimes.python.tasks import Task, is_task_type, task_at
from dmods.target import Target

_MOST = 1_000_000  # tasks
_MOST_SHOWN = 1000  # tables of text: JSON has all tasks
_PLURAL = {WAITS: "wait", RUNS: "run", NEW: "have not begun"}
_NAMED = 3  # tasks of a group that text names

NAMED_TASK = Schema("task", "a task of asyncio", (Column("task", "address"), Column("name")))
TASKS = Schema(
    "tasks",
    "a task of asyncio that is not done",
    (
        Column("task", "address"),
        Column("name"),
        Column("state"),
        Column("waits_for", about="in words, or empty"),
        Column("frames", "objects", hidden=True, fields=PYTHON_FRAME),
        Column("problem", null="the frames are whole", about="why there are no more frames"),
    ),
    when="with --tasks",
)
GROUPS = Schema(
    "groups",
    "tasks that wait at the same lines for the same kind of object",
    (
        Column("count", "count"),
        Column("state"),
        Column("waits_for", about="in words, or empty"),
        Column("tasks", "objects", hidden=True, fields=NAMED_TASK),
        Column("frames", "objects", hidden=True, fields=PYTHON_FRAME),
        Column("problem", null="the frames are whole", about="why there are no more frames"),
    ),
    when="with --tasks",
)
FRAMES = (Column("where"), Column("function"))

_Key = tuple[str, str, Optional[str], tuple[tuple[str, Optional[int], str], ...]]  # state, wait, problem, frames


def task_report(target: Target, python: Python, limit: int) -> Report:
    """Return the tasks that are not done, by name, with at most ``limit`` frames of each."""
    heap = find_heap(target)
    tasks, looked_at = tasks_in(python, objects_in(heap, python.layout.version[1]))
    report = Report(notes=[*python.notes, *heap.notes])
    if looked_at >= _MOST:
        report.notes.append(f"tasks after the first {_MOST} are not looked at")
    groups = group_tasks(tasks)
    report.tables += [_table(group, limit) for group in groups[:_MOST_SHOWN]]
    if len(groups) > _MOST_SHOWN:
        left = sum(map(len, groups[_MOST_SHOWN:]))
        report.notes.append(f"{left} more tasks in {len(groups) - _MOST_SHOWN} groups are only in JSON")
    rows = [
        (
            task.address,
            task.name,
            task.chain.state,
            task.waits_for,
            partial(_values, task.chain.frames[:limit]),
            task.chain.problem,
        )
        for task in tasks
    ]
    report.tables.append(TASKS.table(rows, only="json"))
    report.tables.append(GROUPS.table([_group_row(group, limit) for group in groups], only="json"))
    report.totals = {"release": python.layout.name, "tasks": len(tasks), "done": looked_at - len(tasks)}
    return report


def tasks_in(python: Python, memory: PythonObjects) -> tuple[list[Task], int]:
    """Return the tasks that are not done, by name; and how many objects are tasks. At most 1,000,000 are looked at."""
    types = [row[0] for row in memory.census()[0] if is_task_type(python, python.objects.type_at(row[0]))]
    found = memory.census(types, _MOST)[1] if types else []
    tasks = [task for row in found if (task := task_at(python, row[0])) is not None]
    return sorted(tasks, key=lambda task: (len(task.name), task.name, task.address)), len(found)


def group_tasks(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return the tasks that wait at the same lines for the same kind of object, the largest groups first.

    Groups of one size stay in the order of ``tasks``.
    """
    groups: dict[_Key, list[Task]] = {}
    for task in tasks:
        places = tuple((frame.code.file, frame.line, frame.code.qualname) for frame in task.chain.frames)
        key = (task.chain.state, _kind(task.waits_for), task.chain.problem, places)
        groups.setdefault(key, []).append(task)
    return sorted(groups.values(), key=len, reverse=True)


def _kind(waits_for: str) -> str:
    """Return what a task waits for without its name and its address: "task", "Future"."""
    return "task" if waits_for.startswith("task ") else waits_for.partition(" at 0x")[0]


def _group_row(group: Sequence[Task], limit: int) -> tuple[Value, ...]:
    first = group[0]
    names = partial(_names, group)
    frames = partial(_values, first.chain.frames[:limit])
    return len(group), first.chain.state, _wait(group), names, frames, first.chain.problem


def _names(group: Sequence[Task]) -> list[dict[str, Any]]:
    return [{"task": Address(task.address), "name": task.name} for task in group]


def _wait(group: Sequence[Task]) -> str:
    """Return what all of the tasks wait for, in words; only its kind where that differs."""
    found = {task.waits_for for task in group}
    if len(found) == 1:
        return found.pop()
    kind = _kind(group[0].waits_for)
    return "tasks" if kind == "task" else f"objects of type {kind}"


def _table(group: Sequence[Task], limit: int) -> Table:
    """Return the tasks of a group, and the frames that all of them have."""
    task, wait = group[0], _wait(group)
    rows = [
        (f"{frame.code.file}:{'?' if frame.line is None else frame.line}", frame.code.qualname)
        for frame in task.chain.frames[:limit]
    ]
    left = len(task.chain.frames) - len(rows)
    footer = [f"({left} more frames: --limit)"] if left else []
    footer += [f"(no more coroutines: {task.chain.problem})"] if task.chain.problem is not None else []
    title = f"task {task.name} ({task.address:#x})" if len(group) == 1 else f"{len(group):,} tasks ({_some(group)})"
    state = task.chain.state if len(group) == 1 else _PLURAL.get(task.chain.state, task.chain.state)
    title += f" {state}" + (f" for {wait}" if wait else "")
    return Table(f"task {task.address:#x}", FRAMES, rows, style="plain", title=title, footer=footer, only="text")


def _some(group: Sequence[Task]) -> str:
    """Return the names of the first tasks of a group."""
    more = f" and {len(group) - _NAMED:,} more" if len(group) > _NAMED else ""
    return ", ".join(f"{task.name} {task.address:#x}" for task in group[:_NAMED]) + more


def _values(frames: list[PythonFrame]) -> list[dict[str, Any]]:
    return [python_frame_value(frame) for frame in frames]
