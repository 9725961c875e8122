"""The processes of a kernel."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from dmods.command import KERNEL, Argument, Command, positive
from dmods.report import Column, Report, Schema, Value
from drgnext.commands._oom import HOLDERS, KILLS, oom_tables
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.processes import STATES, Process, Processes
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel

COLUMNS = Schema(
    "processes",
    "a process, or a thread with -T or -S",
    (
        Column("pid", "count", width=7),
        Column("ppid", "count", width=7, about="the parent"),
        Column("state", title="ST", about="a letter, as ps(1) has it"),
        Column("age", width=7, null="it is not known", about="in words: the time in this state"),
        Column("rss", "size", width=5, null="it is a kernel thread"),
        Column("swap", "size", width=5, null="it is a kernel thread"),
        Column("threads", "count", title="THR"),
        Column("name", width=15),
        Column("wchan", about="the function that it sleeps in, or empty"),
        Column("task", "address", hidden=True),
        Column("tgid", "count", hidden=True),
        Column("uid", "count", hidden=True, null="it is not known"),
        Column("cpu", "count", hidden=True, null="it is not known"),
        Column("on_cpu", "flag", hidden=True),
        Column("kernel_thread", "flag", hidden=True),
        Column("age_ns", "ns", hidden=True, null="it is not known"),
    ),
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the processes, those with most memory first."""
    reader = Reader(kernel)
    processes = Processes(reader)
    found = list(processes.all(args.threads or bool(args.state)))
    states = Counter(one.state for one in found)
    everything = found
    spaces = {one.task.tgid: (one.rss, one.swap) for one in found}
    if args.state:
        found = [one for one in found if one.state in args.state]
    oldest = args.state is not None
    found.sort(key=lambda one: (-(one.age or 0) if oldest else 0, -(one.rss + one.swap), one.task.tgid, one.task.pid))
    rows = [row(one) for one in found[: args.top]]
    text = ", ".join(f"{states[letter]} {letter}" for letter in STATES if states[letter])
    footer = ["", f"{sum(states.values())} {'threads' if args.threads or args.state else 'processes'}: {text}"]
    report = Report([COLUMNS.table(rows, footer=footer)])
    if not args.state:
        report.tables += oom_tables(processes, everything)
    report.totals.update(
        processes=len(spaces),
        listed=len(found),
        rss=sum(rss for rss, _swap in spaces.values()),
        swap=sum(swap for _rss, swap in spaces.values()),
        states=dict(states),
    )
    report.notes += [*dict.fromkeys(processes.threads.notes), *reader.notes]
    return report


def row(one: Process) -> tuple[Value, ...]:
    """Return the cells of COLUMNS."""
    task = one.task
    return (
        *(task.pid, one.parent, one.state, age_text(one.age), None if one.kernel_thread else one.rss),
        *(None if one.kernel_thread else one.swap, one.threads, task.comm, one.wchan),
        *(task.address, task.tgid, one.uid, one.cpu, one.on_cpu, one.kernel_thread, one.age),
    )


def _letters(text: str) -> str:
    """Return letters of states. This is the ``type`` of an argument."""
    if not text or set(text) - set(STATES):
        raise argparse.ArgumentTypeError(f"{text!r} is not a state: give letters of {''.join(STATES)}")
    return text


TOTALS = (
    Column("processes", "count"),
    Column("listed", "count", about="before --top"),
    Column("rss", "bytes"),
    Column("swap", "bytes"),
    Column("states", "named_counts", about="by letter"),
)


COMMAND = Command(
    name="ps",
    summary="processes: state and for how long, memory, swap, and the function that each sleeps in",
    description="""Processes with most memory (RSS and swap) come first. The states are those of ps(1):
"""
    + "\n".join(f"  {letter}  {what}" for letter, what in STATES.items())
    + """
AGE is the time in this state: since the task was switched out, or for R since it runs or waits for a CPU. WCHAN is
the function that called the scheduler, as /proc/PID/wchan. Kernel threads have no memory of their own.

Where the log has calls of the OOM killer, two more tables follow. The first says who asked for memory, who was killed
(or nobody, before a panic), whose limit was hit, and who had most memory then. The second says who has most memory in
the dump, and the lowest limit of a memory cgroup above it.""",
    run=run,
    tables=(COLUMNS, KILLS, HOLDERS),
    totals=TOTALS,
    arguments=(
        Argument("-T", "--threads", action="store_true", help="a row for each thread"),
        Argument("-S", "--state", metavar="STATES", type=_letters, help="threads in these states, oldest first: D, RD"),
        Argument("--top", metavar="N", type=positive, help="only the first N"),
    ),
    requires=(KERNEL,),
    examples=(
        ("ps --top 10", "the ten largest processes"),
        ("ps -S D", "what is stuck, and where; `locks` says who holds what it waits for"),
    ),
)
