"""The unique kernel stacks of all tasks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from dmods.base.progress import Progress
from dmods.command import Command
from dmods.commands._stack_arguments import chosen_frames, limit_argument
from dmods.process.shapes import STACK_COLUMNS
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._stacks import fold, gap_text, stack_end, task_frames
from drgnext.kernel.crash.remarks import frame_remarks
from drgnext.kernel.stacks.frames import ENDS, FRAME_LIMIT, Stack
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads, kernel_threads

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

SUMMARY = Schema(
    "stacks",
    "tasks with the same stack",
    (
        Column("number", "count", width=5, title="STACK"),
        Column("count", "count", width=5),
        Column("tasks", about="names and pids"),
        Column("top"),
        Column("pids", "counts", hidden=True),
        *STACK_COLUMNS,
        Column("end", hidden=True, about="why there are no more frames"),
        Column("gaps", "count", hidden=True, about="places where frames are missing"),
    ),
)
SHOWN = SUMMARY.columns[:4]
_WIDEST = 60  # characters of tasks beside a stack in text
FRAMES = (Column("pc", "address", width=16), Column("where"), Column("source"), Column("note"))


class Shared(NamedTuple):
    """Tasks whose frames have the same pcs, and the stack of the first task."""

    tasks: list[Task]
    stack: Stack


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the unique stacks, the most common first."""
    threads = kernel_threads(kernel)
    groups = group(threads, args.limit)
    wanted = [shared for shared in groups if _matches(threads, shared.stack, args.module, args.caller)]
    wanted.sort(key=lambda shared: -len(shared.tasks))  # stable
    places = threads.places
    tops = [
        places.where(shared.stack.frames[0]) if shared.stack.frames else f"({shared.stack.end})" for shared in wanted
    ]
    remarks = [frame_remarks(threads, shared.stack.frames) for shared in wanted]
    rows = [
        (
            number,
            len(shared.tasks),
            _names(shared.tasks),
            top,
            sorted(task.pid for task in shared.tasks),
            partial(task_frames, threads, shared.stack, notes),
            shared.stack.end == "limit",
            ENDS[shared.stack.end],
            len(shared.stack.gaps),
        )
        for number, (shared, top, notes) in enumerate(zip(wanted, tops, remarks), 1)
    ]
    shown = [(number, count, _short(tasks), top) for number, count, tasks, top, *_hidden in rows]
    tables = [Table("stacks", SHOWN, shown, only="text"), SUMMARY.table(rows, only="json")]
    for number, (shared, notes) in enumerate(zip(wanted, remarks), 1):
        frames: list[tuple[Value, ...]] = [
            (frame.pc, places.where(frame), places.source(frame) or "", note)
            for frame, note in zip(shared.stack.frames, notes)
        ]
        lines = fold(threads, shared.stack, frames, lambda gap: (None, gap_text(gap), "", ""))
        title = (
            f"stack {number}: {len(shared.tasks)} task{'s' if len(shared.tasks) > 1 else ''}: {_names(shared.tasks)}"
        )
        footer = [stack_end(threads, shared.stack)]
        tables.append(Table(f"stack {number}", FRAMES, lines, style="plain", title=title, footer=footer, only="text"))
    count = sum(len(shared.tasks) for shared in wanted)
    none = [] if wanted or not groups else [f"{len(groups)} stacks were compared: none matches -m and -c"]
    return Report(tables, notes=[*threads.notes, *none], totals={"stacks": len(wanted), "tasks": count})


def group(threads: Threads, limit: int = FRAME_LIMIT) -> list[Shared]:
    """Return all tasks, grouped by the pcs of their stacks. Names are looked up later, once for each group."""
    groups: dict[object, Shared] = {}
    tasks = list(threads.tasks.all())
    with Progress("unwinding") as bar:
        for number, task in enumerate(tasks):
            bar.update(number, len(tasks))
            stack = threads.stack(task, limit)
            key = stack.end, stack.gaps, tuple((frame.pc, frame.exact) for frame in stack.frames)
            groups.setdefault(key, Shared([], stack)).tasks.append(task)
    return list(groups.values())


def _names(tasks: Sequence[Task]) -> str:
    """Return names with their pids in order, runs of pids as FIRST-LAST."""
    by_name: dict[str, list[list[int]]] = {}
    for task in sorted(tasks, key=lambda task: task.pid):
        runs = by_name.setdefault(task.comm, [])
        if runs and runs[-1][1] == task.pid - 1:
            runs[-1][1] = task.pid
        else:
            runs.append([task.pid, task.pid])
    return ", ".join(
        f"{name} {','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}" for name, runs in by_name.items()
    )


def _short(names: str) -> str:
    """Return as many of the names as a table has room for. All of them are above the stack's frames."""
    if len(names) <= _WIDEST:
        return names
    return names[: names.rfind(",", 0, _WIDEST - 4) + 1 or _WIDEST - 4].rstrip() + " ..."


def _matches(threads: Threads, stack: Stack, module: str, caller: str) -> bool:
    """Return whether the stack has a frame in the module, and a frame in the function."""
    if not module and not caller:
        return True
    functions = [threads.places.function(threads.places.inside(frame)) for frame in stack.frames]
    # Names of modules in the kernel have no dashes (KBUILD_MODNAME).
    name = "" if module in ("vmlinux", "kernel") else module.replace("-", "_")
    return (not module or any(each is not None and each.module == name for each in functions)) and (
        not caller or any(each is not None and each.name == caller for each in functions)
    )


COMMAND = Command(
    name="stacks",
    summary="the unique kernel stacks of all tasks, the most common first",
    description="Tasks with the same pcs share a stack.",
    run=run,
    tables=(SUMMARY,),
    totals=(Column("stacks", "count"), Column("tasks", "count")),
    arguments=(
        *chosen_frames("nfs"),
        limit_argument(FRAME_LIMIT),
    ),
    requires=("kernel",),
    examples=(
        ("stacks", "what all tasks are doing, grouped"),
        ("stacks -m ext4", "who is in a module"),
        ("stacks -c io_schedule", "who waits for I/O"),
    ),
)
