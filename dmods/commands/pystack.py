"""Show the Python frames of all threads of a CPython process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Optional

from dmods.command import Argument, Command, positive
from dmods.commands._python import python_of
from dmods.commands._python_greenlets import GREENLETS
from dmods.commands._python_greenlets import GROUPS as GREENLET_GROUPS
from dmods.commands._python_suspended import PLACES, suspended_report
from dmods.commands._python_tasks import GROUPS, TASKS, task_report
from dmods.commands._stacks import python_frame_value
from dmods.errors import UsageError
from dmods.process.shapes import PYTHON_FRAME
from dmods.report import Column, Report, Schema, Table, Value
from dmods.runtimes.python.gil import Gil, find_gils, gil_name
from dmods.runtimes.python.runtime import MOST_FRAMES, PythonStack, PythonThread
from dmods.runtimes.python.thread_names import thread_name
from dmods.target import Target

_MOST_TOTAL = 1_000_000  # frames of all threads together

THREADS = Schema(
    "threads",
    "a thread of CPython",
    (
        Column("thread", "count", null="the thread is not in the dump"),
        Column("name", null="it is not known"),
        Column("state", "address", about="its PyThreadState"),
        Column("interpreter", "address"),
        Column("frames", "objects", hidden=True, fields=PYTHON_FRAME),
        Column("problem", null="the frames are whole", about="why there are no more frames"),
        Column("python_name", null="it is not known", about="threading.Thread.name"),
    ),
    when="without --tasks and --suspended",
)
FRAMES = (Column("where"), Column("function"), Column("note"))
GILS = Schema(
    "gils",
    "a global interpreter lock",
    (
        Column("gil", "address"),
        Column("held", "flag"),
        Column("thread", "count", null="nobody holds it, or it is not known"),
        Column("state", "address", null="nobody holds it, or it is not known"),
    ),
    when="without --tasks and --suspended",
)


def run(target: Target, args: argparse.Namespace) -> Report:
    """Return the Python stack of each thread, the thread that died first; or the tasks of asyncio."""
    python = python_of(target)
    if args.tasks and args.suspended:
        raise UsageError("--tasks and --suspended exclude each other", "give one of them")
    if args.tasks:
        return task_report(target, python, args.limit)
    if args.suspended:
        return suspended_report(target, python, args.limit)
    report = Report(notes=list(python.notes))
    order = {thread.tid: number for number, thread in enumerate(target.threads())}
    threads = sorted(python.threads, key=lambda one: order.get(one.thread.tid, -1) if one.thread else len(order))
    gils = find_gils(python)
    holders = {gil.holder.address for gil in gils if gil.holder is not None}
    left, records, shown = _MOST_TOTAL, [], 0
    for number, thread in enumerate(threads):
        if left <= 0:
            report.notes.append(f"{len(threads) - number} threads are left out: there are too many frames")
            break
        stack = python.stack(thread, min(args.limit, left))
        left -= len(stack.frames)
        shown += len(stack.frames)
        name = thread_name(python, stack.frames)
        several = len(python.interpreters) > 1
        report.tables.append(_table(thread, stack, name, several, thread.address in holders))
        records.append((*_record(thread, stack), name))
        if stack.problem is not None:
            report.notes.append(f"{_title(thread)}: {stack.problem}")
    report.tables += _gil_tables(gils)
    report.tables.append(THREADS.table(records, only="json"))
    report.totals = {"release": python.layout.name, "threads": len(records), "frames": shown}
    return report


def _title(thread: PythonThread) -> str:
    if thread.thread is None:
        return f"thread state {thread.address:#x}"
    return f"thread {thread.thread.tid}" + (f" ({thread.thread.name})" if thread.thread.name else "")


def _gil_tables(gils: Sequence[Gil]) -> list[Table]:
    """Return the GILs as JSON has them, and a line of text for those that no thread holds."""
    free = [f"{gil_name(gil, gils)} is free: no thread holds it" for gil in gils if gil.holder is None]
    rows = [
        (
            gil.address,
            gil.holder is not None,
            gil.holder.thread.tid if gil.holder is not None and gil.holder.thread is not None else None,
            gil.holder.address if gil.holder is not None else None,
        )
        for gil in gils
    ]
    text = [Table("gil", (Column("gil"),), [(line,) for line in free], style="plain", only="text")] if free else []
    return [*text, GILS.table(rows, only="json")]


def _table(thread: PythonThread, stack: PythonStack, name: Optional[str], several: bool, holds: bool) -> Table:
    title = (
        _title(thread)
        + (f" {name!r}" if name is not None else "")
        + (f" of interpreter {thread.interpreter:#x}" if several else "")
        + (" holds the GIL" if holds else "")
    )
    rows = [(f"{frame.code.file}:{_line(frame.line)}", frame.code.qualname, "") for frame in stack.frames]
    footer = [] if stack.problem is None else [f"(no more frames: {stack.problem})"]
    return Table(
        f"thread {thread.thread.tid if thread.thread else hex(thread.address)}",
        FRAMES,
        rows,
        style="plain",
        title=title,
        footer=footer if rows else footer or ["(no Python frame)"],
        only="text",
    )


def _line(line: Optional[int]) -> str:
    return "?" if line is None else str(line)


def _record(thread: PythonThread, stack: PythonStack) -> tuple[Value, ...]:
    return (
        thread.thread.tid if thread.thread else None,
        thread.thread.name if thread.thread else None,
        thread.address,
        thread.interpreter,
        partial(_values, stack),
        stack.problem,
    )


def _values(stack: PythonStack) -> list[dict[str, Any]]:
    return [python_frame_value(frame) for frame in stack.frames]


TOTALS = (
    Column("release", "text"),
    Column("threads", "count", when="without --tasks and --suspended"),
    Column("frames", "count", when="without --tasks and --suspended"),
    Column("tasks", "count", when="with --tasks"),
    Column("done", "count", when="with --tasks"),
    Column("suspended", "count", when="with --suspended"),
    Column("in_tasks", "count", when="with --suspended"),
    Column("greenlets", "count", when="with --suspended"),
)


COMMAND = Command(
    name="pystack",
    summary="the Python frames of every thread: file, line and function",
    description=(
        "pystack reads CPython 3.9 to 3.15, with or without debug information. The innermost frame comes first. The\n"
        "name of its threading.Thread is shown beside each thread, in quotes. The thread that holds the GIL is named;\n"
        "if no thread holds it, the last line says so. Frames of a suspended generator or coroutine are not part of a\n"
        "thread's stack. `stacks` and `findstack` show the same frames between those of C. A free-threaded build\n"
        "(3.13t and later) is not read.\n\n"
        "--tasks shows the tasks of asyncio that are not done, as asyncio.all_tasks() has them: the name, what the\n"
        "task waits for, and the line of each coroutine that it waits in. The innermost coroutine comes first. Tasks\n"
        "that wait at the same lines are shown once, with their number; the largest groups come first.\n\n"
        "--suspended counts the generators and coroutines that have not ended, by the line where they are suspended.\n"
        "It leaves out those that a thread runs and those that a task of asyncio waits in. Many at one line are\n"
        "iterators that nobody finished, or coroutines that nobody awaited. The greenlets that wait follow with their\n"
        "frames, also greenlets of gevent and eventlet. Greenlets that wait at the same lines are shown once, with\n"
        "their number."
    ),
    run=run,
    tables=(THREADS, GILS, TASKS, GROUPS, PLACES, GREENLETS, GREENLET_GROUPS),
    totals=TOTALS,
    arguments=(
        Argument("--tasks", action="store_true", help="the tasks of asyncio, with the lines where they wait"),
        Argument(
            "--suspended", action="store_true", help="generators and coroutines outside of tasks, by place; greenlets"
        ),
        Argument("-n", "--limit", type=positive, default=MOST_FRAMES, metavar="N", help="at most N frames a thread"),
    ),
    examples=(
        ("pystack", "where every thread was in its Python code"),
        ("pystack --tasks", "where every task of asyncio waits"),
        ("pystack --suspended", "the lines of suspended generators, with their number; the lines of waiting greenlets"),
    ),
)
