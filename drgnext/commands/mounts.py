"""Show what is mounted where."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command
from dmods.report import Column, Report, Schema
from drgnext.commands.findstack import chosen
from drgnext.kernel.stacks.threads import kernel_threads
from drgnext.kernel.system.mounts import mounts
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "mounts",
    "a mount that the task sees",
    (
        Column("source", width=12),
        Column("target", width=24),
        Column("type", width=10),
        Column("options"),
        Column("device", hidden=True, about="major:minor"),
        Column("superblock", "address", hidden=True),
        Column("mount", "address", hidden=True),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the mounts that a task sees."""
    threads = kernel_threads(kernel)
    reader = Reader(kernel)
    task = threads.task_object(chosen(threads, args.task or "1", "mounts")[0])
    rows = []
    with reader.reading("namespaces"):
        if task.nsproxy.value_() and task.fs.value_():
            rows = [(*mount,) for mount in mounts(reader, task)]
        else:
            reader.note("the task has ended, and has no mounts")
    notes = [*dict.fromkeys(threads.notes), *reader.notes]
    return Report([COLUMNS.table(rows)], notes=notes, totals={"mounts": len(rows)})


COMMAND = Command(
    name="mounts",
    summary="what is mounted where, as /proc/mounts showed it",
    description="""These are the mounts that TASK (address, pid or name; init by default) can reach. Options that
only the file system knows are not shown.""",
    run=run,
    tables=(COLUMNS,),
    totals=(Column("mounts", "count"),),
    arguments=(Argument("task", metavar="TASK", nargs="?", help="whose mounts (default: those of init)"),),
    requires=(KERNEL,),
    examples=(("mounts", "the mounts of the machine"), ("mounts 1234", "those in a container")),
)
