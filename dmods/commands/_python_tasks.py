"""The part of `pystack` that shows the tasks of asyncio."""

from __future__ import annotations

from functools import partial
from typing import Any

from dmods.commands._stacks import python_frame_value
from dmods.heap.process_heap import find_heap
from dmods.heap.python_objects import PythonObjects, objects_in
from dmods.report import Column, Report, Table
from dmods.runtimes.python.runtime import Python, PythonFrame
from dmods.runtimes.python.tasks import Task, is_task_type, task_at
from dmods.target import Target

_MOST = 1_000_000  # tasks
_MOST_SHOWN = 1000  # tables of text: JSON has all tasks

TASKS = (
    Column("task", "address"),
    Column("name"),
    Column("state"),
    Column("waits_for"),
    Column("frames", hidden=True),
    Column("problem"),
)
FRAMES = (Column("where"), Column("function"))


def task_report(target: Target, python: Python, limit: int) -> Report:
    """Return the tasks that are not done, by name, with at most ``limit`` frames of each."""
    heap = find_heap(target)
    tasks, looked_at = tasks_in(python, objects_in(heap, python.layout.version[1]))
    report = Report(notes=[*python.notes, *heap.notes])
    if looked_at >= _MOST:
        report.notes.append(f"tasks after the first {_MOST} are not looked at")
    report.tables += [_table(task, limit) for task in tasks[:_MOST_SHOWN]]
    if len(tasks) > _MOST_SHOWN:
        report.notes.append(f"{len(tasks) - _MOST_SHOWN} more tasks are only in JSON")
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
    report.tables.append(Table("tasks", TASKS, rows, only="json"))
    report.totals = {"release": python.layout.name, "tasks": len(tasks), "done": looked_at - len(tasks)}
    return report


def tasks_in(python: Python, memory: PythonObjects) -> tuple[list[Task], int]:
    """Return the tasks that are not done, by name; and how many objects are tasks. At most 1,000,000 are looked at."""
    types = [row[0] for row in memory.census()[0] if is_task_type(python, python.objects.type_at(row[0]))]
    found = memory.census(types, _MOST)[1] if types else []
    tasks = [task for row in found if (task := task_at(python, row[0])) is not None]
    return sorted(tasks, key=lambda task: (len(task.name), task.name, task.address)), len(found)


def _table(task: Task, limit: int) -> Table:
    waits = f" for {task.waits_for}" if task.waits_for else ""
    rows = [
        (f"{frame.code.file}:{'?' if frame.line is None else frame.line}", frame.code.qualname)
        for frame in task.chain.frames[:limit]
    ]
    left = len(task.chain.frames) - len(rows)
    footer = [f"({left} more frames: --limit)"] if left else []
    footer += [f"(no more coroutines: {task.chain.problem})"] if task.chain.problem is not None else []
    title = f"task {task.name} ({task.address:#x}) {task.chain.state}{waits}"
    return Table(f"task {task.address:#x}", FRAMES, rows, style="plain", title=title, footer=footer, only="text")


def _values(frames: list[PythonFrame]) -> list[dict[str, Any]]:
    return [python_frame_value(frame) for frame in frames]
