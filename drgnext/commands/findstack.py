"""One task's stack, with the truth about where it was trapped."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods.command import Argument, Command, positive
from dmods.errors import UsageError
from dmods.report import Column, Report, Table, Value
from drgnext.kernel import panic, remarks, threads
from drgnext.kernel.stacks import ENDS, FRAME_LIMIT, Stack
from drgnext.kernel.tasks import Task
from drgnext.kernel.threads import Threads

if TYPE_CHECKING:
    from drgnext.kernel.target import Kernel

FRAMES = (
    Column("sp", "address", width=16),
    Column("pc", "address", width=16),
    Column("where"),
    Column("source"),
    Column("note"),
    Column("exact", "count", hidden=True),
    Column("pt_regs", "address", hidden=True),
)
MOST_TASKS = 20  # of one name


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    known = threads.of(kernel)
    tasks = chosen(known, args.task)
    report = Report(notes=known.notes)
    for task in tasks[:MOST_TASKS]:
        stack = known.stack(task, args.limit)
        report.tables.append(_table(known, task, stack))
        if args.verbose:
            report.tables.append(_registers(known, stack))
        report.totals.update(_totals(task, stack))
    if len(tasks) > MOST_TASKS:
        report.notes.append(f"{len(tasks)} tasks are called {args.task}: the first {MOST_TASKS} are shown")
    report.notes += [note for note in known.notes if note not in report.notes]
    return report


def chosen(known: Threads, text: Optional[str]) -> list[Task]:
    """The tasks that the user means; without a word, the one that panicked. Raises UsageError."""
    if text is not None:
        return known.tasks.find(text)
    task = panic.crashed_task(known)
    if task is None:
        raise UsageError(
            "no task is known to have panicked: the kernel did not, or its dump is truncated",
            "name one: findstack PID, NAME or ADDRESS",
        )
    return [task]


def _table(known: Threads, task: Task, stack: Stack) -> Table:
    places = known.places
    rows = [
        (
            frame.sp,
            frame.pc,
            places.where(frame),
            places.source(frame) or "",
            note,
            int(frame.exact),
            frame.trap.address if frame.trap is not None else None,
        )
        for frame, note in zip(stack.frames, remarks.remarks(known, stack.frames))
    ]
    sp = f"{stack.frames[0].sp:x}" if stack.frames else "unknown"
    title = f"stack pointer for thread {task.address:x} ({task.comm}, pid {task.pid}): {sp}"
    return Table("stack", FRAMES, rows, style="plain", title=title, footer=[remarks.ending(known, stack)])


def _totals(task: Task, stack: Stack) -> dict[str, Value]:
    return {
        "thread": hex(task.address),
        "name": task.comm,
        "pid": task.pid,
        "frames": len(stack.frames),
        "end": ENDS[stack.end],
        "user_pc": None if stack.user is None else hex(stack.user.pc),
    }


def _registers(known: Threads, stack: Stack) -> Table:
    """What is known in each frame; all registers where they were saved."""
    names = [name for name in known.machine.registers if any(name in frame.registers for frame in stack.frames)]
    columns = [Column("frame", "address"), Column("found"), *(Column(name, "address", width=16) for name in names)]
    rows = [(frame.sp, frame.found, *(frame.registers.get(name) for name in names)) for frame in stack.frames]
    return Table("registers", columns, rows, style="record")


COMMAND = Command(
    name="findstack",
    summary="a task's kernel stack: stack pointer, pc, function and source line of each frame, trapped ones marked",
    description=(
        "TASK is the address of a task_struct, a pid or a name; the task that panicked by default. Where an exception\n"
        "or an interrupt stopped the code, the pc is the exact one, from the registers saved then (pt_regs).\n"
        "A frame that is only likely says so. Nothing past the boundary to user space is shown."
    ),
    run=run,
    arguments=(
        Argument("task", metavar="TASK", nargs="?", help="address, pid or name (default: the task that panicked)"),
        Argument("-v", "--verbose", action="store_true", help="the registers known in each frame, too"),
        Argument("-n", "--limit", type=positive, default=FRAME_LIMIT, metavar="N", help="at most N frames"),
    ),
    requires=("kernel",),
    examples=(
        ("findstack", "the stack of the task that panicked"),
        ("findstack 1", "the task with that pid"),
        ("findstack kswapd0 -v", "by name, with registers"),
    ),
)
