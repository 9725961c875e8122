"""The unique kernel stacks of all tasks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dmods.command import Argument, Command, positive
from dmods.progress import Progress
from dmods.report import Column, Report, Table
from drgnext.kernel import remarks, threads
from drgnext.kernel.stacks import FRAME_LIMIT, Stack
from drgnext.kernel.tasks import Task
from drgnext.kernel.threads import Threads

if TYPE_CHECKING:
    from drgnext.kernel.target import Kernel

SUMMARY = (
    Column("stack", "count", width=5),
    Column("count", "count", width=5),
    Column("tasks"),
    Column("top"),
)
FRAMES = (Column("pc", "address", width=16), Column("where"), Column("source"), Column("note"))


class Shared(NamedTuple):
    """Tasks whose frames have the same pcs, and the stack of the first of them."""

    tasks: list[Task]
    stack: Stack


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    known = threads.of(kernel)
    groups = group(known, args.limit)
    wanted = [one for one in groups if _matches(known, one.stack, args.module, args.caller)]
    wanted.sort(key=lambda one: -len(one.tasks))  # stable
    places = known.places
    tops = [places.where(one.stack.frames[0]) if one.stack.frames else f"({one.stack.end})" for one in wanted]
    rows = [(n, len(one.tasks), _names(one.tasks), top) for n, (one, top) in enumerate(zip(wanted, tops), 1)]
    tables = [Table("stacks", SUMMARY, rows)]
    for number, one in enumerate(wanted, 1):
        frames = one.stack.frames
        lines = [
            (frame.pc, places.where(frame), places.source(frame) or "", note)
            for frame, note in zip(frames, remarks.remarks(known, frames))
        ]
        title = f"stack {number}: {len(one.tasks)} task{'s' if len(one.tasks) > 1 else ''}"
        footer = [remarks.ending(known, one.stack)]
        tables.append(Table(f"stack {number}", FRAMES, lines, style="plain", title=title, footer=footer))
    count = sum(len(one.tasks) for one in wanted)
    none = [] if wanted or not groups else [f"none of the {len(groups)} stacks goes through what was asked for"]
    return Report(tables, notes=[*known.notes, *none], totals={"stacks": len(wanted), "tasks": count})


def group(known: Threads, limit: int = FRAME_LIMIT) -> list[Shared]:
    """All tasks by the pcs of their stacks. Nothing is looked up: that is for those that differ."""
    groups: dict[object, Shared] = {}
    tasks = list(known.tasks.all())
    with Progress("unwinding") as bar:
        for number, task in enumerate(tasks):
            bar.update(number, len(tasks))
            stack = known.stack(task, limit)
            key = stack.end, tuple((frame.pc, frame.exact) for frame in stack.frames)
            groups.setdefault(key, Shared([], stack)).tasks.append(task)
    return list(groups.values())


def _names(tasks: Sequence[Task]) -> str:
    """Names with their pids in order, runs of them as FIRST-LAST."""
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


def _matches(known: Threads, stack: Stack, module: str, caller: str) -> bool:
    if not module and not caller:
        return True
    functions = [known.places.function(known.places.inside(frame)) for frame in stack.frames]
    # The kernel's names of modules have no dashes (KBUILD_MODNAME).
    name = "" if module in ("vmlinux", "kernel") else module.replace("-", "_")
    return (not module or any(one is not None and one.module == name for one in functions)) and (
        not caller or any(one is not None and one.name == caller for one in functions)
    )


COMMAND = Command(
    name="stacks",
    summary="the unique kernel stacks of all tasks, the most common first",
    description="Tasks that stand at the same pcs are shown once.",
    run=run,
    arguments=(
        Argument(
            "-m", "--module", default="", metavar="MODULE", help="only stacks with a frame in this module (nfs, ...)"
        ),
        Argument("-c", "--caller", default="", metavar="FUNCTION", help="only stacks with a frame in this function"),
        Argument("-n", "--limit", type=positive, default=FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    requires=("kernel",),
    examples=(
        ("stacks", "what all tasks are doing, grouped"),
        ("stacks -m ext4", "who is in a module"),
        ("stacks -c io_schedule", "who waits for I/O"),
    ),
)
