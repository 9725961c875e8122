"""Show what each CPU runs, and what waits for it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Command
from dmods.report import Column, Report, Schema, Value
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.processes import Processes
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.runqueues import run_queues

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

QUEUES = Schema(
    "queues",
    "the run queue of a CPU",
    (
        Column("cpu", "count", width=4),
        Column("count", "count", title="TASKS"),
        Column("current", width=15, null="it is not known"),
        Column("pid", "count", width=7, null="it is not known"),
        Column("lag", title="CLOCK LAG", null="it is not known", about="in words: how far its clock is behind"),
        Column("lag_ns", "ns", hidden=True, null="it is not known"),
        Column("rq", "address", hidden=True),
    ),
)
TASKS = Schema(
    "tasks",
    "a task that runs, or is ready to run",
    (
        Column("cpu", "count", width=4),
        Column("pid", "count", width=7),
        Column("name", width=15),
        Column("state", width=9, about="running, waiting or throttled"),
        Column("age", width=7, null="it is not known", about="in words"),
        Column("policy", width=8),
        Column("priority", "count"),
        Column("task", "address", hidden=True),
        Column("age_ns", "ns", hidden=True, null="it is not known"),
    ),
)
_FIXED_POINT = 1 << 11  # of avenrun: FSHIFT (include/linux/sched/loadavg.h)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the run queues, and the tasks in them."""
    reader = Reader(kernel)
    processes = Processes(reader)
    queues = run_queues(processes)
    rows: list[tuple[Value, ...]] = []
    tasks: list[tuple[Value, ...]] = []
    for one in queues:
        name, pid = (one.current.comm, one.current.pid) if one.current else (None, None)
        rows.append((one.cpu, one.running, name, pid, age_text(one.lag), one.lag, one.address))
        for each in one.tasks:
            state = "running" if each.running else "throttled" if each.throttled else "waiting"
            tasks.append(
                (
                    *(one.cpu, each.task.pid, each.task.comm, state, age_text(each.age), each.policy, each.priority),
                    *(each.task.address, each.age),
                )
            )
    report = Report([QUEUES.table(rows), TASKS.table(tasks)])
    with reader.reading("load averages"):
        averages = [round(int(value) / _FIXED_POINT, 2) for value in reader.prog["avenrun"]]
        report.totals["load"] = averages
        report.tables[0].footer = ["", "load average: " + ", ".join(f"{each:.2f}" for each in averages)]
    report.totals.update(cpus=len(rows), running=sum(one.running for one in queues))
    report.notes += [*dict.fromkeys(processes.threads.notes), *reader.notes]
    return report


TOTALS = (
    Column("load", "averages", when="where the dump has them", about="of 1, 5 and 15 minutes"),
    Column("cpus", "count"),
    Column("running", "count", about="tasks that run or are ready"),
)


COMMAND = Command(
    name="runq",
    summary="what each CPU runs, what waits for it and for how long, and the load averages",
    description="""CLOCK LAG is how far the clock of a run queue is behind. For so long this CPU has neither
scheduled nor taken a tick. An idle CPU lags without harm. A busy CPU that lags by seconds had interrupts disabled.
A throttled task has used up its control group's share of the period (cpu.max), and waits for the next one.""",
    run=run,
    tables=(QUEUES, TASKS),
    totals=TOTALS,
    requires=(KERNEL,),
    examples=(("runq", "the CPUs, and the tasks that are ready"),),
)
