"""The open files of a process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command
from dmods.report import Column, Report, Schema
from drgnext.commands.findstack import MOST_TASKS, chosen
from drgnext.kernel.stacks.threads import kernel_threads
from drgnext.kernel.system.descriptors import Files
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "files",
    "an open file; each task has a table",
    (
        Column("fd", "count", width=4),
        Column("type", width=6),
        Column("access", title="RW", about="r, w or both"),
        Column("position", "count", width=10, about="bytes"),
        Column("path"),
        Column("inode", "count", hidden=True),
        Column("flags", "count", hidden=True, about="of open(2)"),
        Column("file", "address", hidden=True),
        Column("pid", "count", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the open files of the tasks that the user names."""
    threads = kernel_threads(kernel)
    reader = Reader(kernel)
    files = Files(reader)
    report = Report()
    tasks = chosen(threads, args.task, "files")
    open_files = 0
    for task in tasks[:MOST_TASKS]:
        rows = []
        with reader.reading("tables of open files"):
            for descriptor in files.of(threads.task_object(task)):
                with reader.reading("open files"):
                    one = files.describe(descriptor)
                    rows.append(
                        (
                            one.number,
                            one.kind,
                            one.access,
                            one.position,
                            one.path,
                            one.inode,
                            one.flags,
                            one.file,
                            task.pid,
                        )
                    )
        open_files += len(rows)
        title = f"open files of {task.comm}, pid {task.pid}: {len(rows)}"
        report.tables.append(COLUMNS.table(rows, title=title))
    report.totals.update(tasks=len(tasks), files=open_files)
    report.notes += [*dict.fromkeys(threads.notes), *reader.notes]
    if len(tasks) > MOST_TASKS:
        report.notes.append(f"{len(tasks)} tasks have the name {args.task}: the first {MOST_TASKS} are shown")
    return report


COMMAND = Command(
    name="files",
    summary="the open files of a process: number, type, access, position and path",
    description="""TASK is the address of a task_struct, a pid or a name. By default it is the task that panicked. The
paths are those of /proc/PID/fd. `sockets` says more of sockets.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("tasks", "count"), Column("files", "count")),
    arguments=(
        Argument("task", metavar="TASK", nargs="?", help="address, pid or name (default: the task that panicked)"),
    ),
    requires=(KERNEL,),
    examples=(("files 1", "the open files of init"),),
)
