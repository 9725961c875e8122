"""The kernel stack of a task. Trapped frames have their exact pc."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from dmods.command import Command
from dmods.commands._stack_arguments import VERBOSE, limit_argument
from dmods.errors import UsageError
from dmods.process.shapes import STACK_COLUMNS
from dmods.report import Column, Report, Schema, Table, Value
from drgnext.commands._stacks import TASK, fold, gap_text, stack_end, task_frames
from drgnext.expressions import value_of, value_of_variable
from drgnext.kernel.crash.panic import crashed_task
from drgnext.kernel.crash.remarks import frame_remarks
from drgnext.kernel.stacks.frames import ENDS, FRAME_LIMIT, Stack
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.stacks.threads import Threads, kernel_threads

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

FRAMES = (
    Column("sp", "address", width=16),
    Column("pc", "address", width=16),
    Column("where"),
    Column("source"),
    Column("note"),
)
TASKS = Schema(
    "tasks",
    "a task that has the name, the pid or the address",
    (
        Column("task", "address"),
        Column("name"),
        Column("pid", "count"),
        Column("sp", "address", null="the task has no frames"),
        *STACK_COLUMNS,
        Column("end", about="why there are no more frames"),
        Column("user_pc", "address", null="the stack does not begin in user space"),
        Column("gaps", "count", about="places where frames are missing"),
    ),
)
_WORD = (1 << 64) - 1
MOST_TASKS = 20  # at most, if many tasks share a name


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the stacks of the tasks that the user names."""
    threads = kernel_threads(kernel)
    tasks = chosen(threads, args.task, "findstack")
    report = Report(notes=threads.notes)
    records: list[tuple[Value, ...]] = []
    for task in tasks[:MOST_TASKS]:
        stack = threads.stack(task, args.limit)
        notes = frame_remarks(threads, stack.frames)
        report.tables.append(_table(threads, task, stack, notes))
        records.append(_record(threads, task, stack, notes, args.verbose))
        if args.verbose:
            report.tables.append(_registers(threads, stack))
        report.totals.update(_totals(task, stack))
    report.tables.append(TASKS.table(records, only="json"))
    if len(tasks) > MOST_TASKS:
        report.notes.append(f"{len(tasks)} tasks have the name {args.task}: the first {MOST_TASKS} are shown")
    report.notes += [note for note in threads.notes if note not in report.notes]
    return report


def chosen(threads: Threads, text: Optional[str], command: str) -> list[Task]:
    """Return the tasks that the user of the command means. Without a text it is the task that panicked.

    Raises UsageError.
    """
    if text is not None:
        return _named(threads, text)
    task = crashed_task(threads)
    if task is None:
        raise UsageError(
            "no task is known to have panicked: the kernel did not panic, or its dump is truncated",
            f"give a task: {command} PID, NAME or ADDRESS",
        )
    return [task]


def _named(threads: Threads, text: str) -> list[Task]:
    """Return the tasks that a word means: an address, a pid, a name, or an expression of drgn's prompt.

    Raises UsageError.
    """
    kernel = threads.kernel
    value = value_of_variable(text, kernel.prog, kernel.variables)
    if value is not None:
        return threads.tasks.find(hex(value & _WORD))
    try:
        return threads.tasks.find(text)
    except UsageError:
        value = None if text.isalnum() else value_of(text, kernel.prog, kernel.variables)
        if value is None:
            raise
    return threads.tasks.find(hex(value & _WORD))


def _table(threads: Threads, task: Task, stack: Stack, notes: list[str]) -> Table:
    """Return the table of a stack for text output."""
    places = threads.places
    frames: list[tuple[Value, ...]] = [
        (frame.sp, frame.pc, places.where(frame), places.source(frame) or "", note)
        for frame, note in zip(stack.frames, notes)
    ]
    rows = fold(threads, stack, frames, lambda gap: (None, None, gap_text(gap), "", ""))
    sp = f"{stack.frames[0].sp:x}" if stack.frames else "unknown"
    title = f"stack pointer for thread {task.address:x} ({task.comm}, pid {task.pid}): {sp}"
    return Table("stack", FRAMES, rows, style="plain", title=title, footer=[stack_end(threads, stack)], only="text")


def _record(threads: Threads, task: Task, stack: Stack, notes: list[str], registers: bool) -> tuple[Value, ...]:
    """Return the cells of TASKS."""
    return (
        task.address,
        task.comm,
        task.pid,
        stack.frames[0].sp if stack.frames else None,
        lambda: task_frames(threads, stack, notes, registers),
        stack.end == "limit",
        ENDS[stack.end],
        None if stack.user is None else stack.user.pc,
        len(stack.gaps),
    )


def _totals(task: Task, stack: Stack) -> dict[str, Value]:
    """Return the totals of a report about one task."""
    return {
        "thread": hex(task.address),
        "name": task.comm,
        "pid": task.pid,
        "frames": len(stack.frames),
        "end": ENDS[stack.end],
        "user_pc": None if stack.user is None else hex(stack.user.pc),
        "gaps": len(stack.gaps),
    }


def _registers(threads: Threads, stack: Stack) -> Table:
    """Return the known registers of each frame. A frame with a trap knows all of them."""
    names = [name for name in threads.machine.registers if any(name in frame.registers for frame in stack.frames)]
    columns = [Column("frame", "address"), Column("found"), *(Column(name, "address", width=16) for name in names)]
    rows = [(frame.sp, frame.found, *(frame.registers.get(name) for name in names)) for frame in stack.frames]
    return Table("registers", columns, rows, style="record", only="text")


TOTALS = (
    Column("thread", "address", about="the task_struct; the totals are those of the last task"),
    Column("name", "text"),
    Column("pid", "count"),
    Column("frames", "count"),
    Column("end", "text"),
    Column("user_pc", "address", null="the stack does not begin in user space"),
    Column("gaps", "count"),
)


COMMAND = Command(
    name="findstack",
    summary="a task's kernel stack: stack pointer, pc, function and source line of each frame, trapped ones marked",
    description=(
        "TASK is the address of a task_struct, a pid or a name. By default it is the task that panicked. Where an\n"
        "exception or an interrupt stopped the code, the pc is the exact one, from the saved registers (pt_regs). A\n"
        "frame that is only likely says so. A row that begins with ... stands for frames that are missing. Frames in\n"
        "user space are not shown."
    ),
    run=run,
    tables=(TASKS,),
    totals=TOTALS,
    arguments=(
        TASK,
        VERBOSE,
        limit_argument(FRAME_LIMIT),
    ),
    requires=("kernel",),
    examples=(
        ("findstack", "the stack of the task that panicked"),
        ("findstack 1", "the task with that pid"),
        ("findstack kswapd0 -v", "by name, with registers"),
    ),
)
