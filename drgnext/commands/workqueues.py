"""Works in flight and works that wait, by workqueue and pool of workers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from dmods.command import KERNEL, Argument, Command
from dmods.errors import UserError
from dmods.process.shapes import FRAME
from dmods.report import Address, Column, Report, Schema, Table, Value
from drgnext.commands._stacks import task_frames
from drgnext.kernel.crash.remarks import frame_remarks
from drgnext.kernel.stacks.threads import Threads
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.processes import Processes
from drgnext.kernel.system.reading import Reader
from drgnext.kernel.system.workqueues import Busy, Delayed, Part, Pool, Queue, Workqueues, Works

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel
    from drgnext.kernel.stacks.tasks import Task

BEHIND = Schema(
    "behind",
    "works that must wait for the same worker",
    (Column("function"), Column("works", "count"), Column("pid", "count", null="no task waits for them")),
)
WORKS = Schema(
    "works",
    "a work in flight or one that waits",
    (
        Column("workqueue", width=16),
        Column("pool", "count", width=4),
        Column("cpus", width=5, about="of the pool"),
        Column("state", width=9, about="in-flight, behind, pending or inactive"),
        Column("age", title="FOR", width=7, null="it is not known", about="in words; `+` for at least"),
        Column("count", "count", title="WORKS", about="works of this function"),
        Column("function", width=20),
        Column("pid", "count", width=7, null="no task is known"),
        Column("name", width=15, null="no task is known"),
        Column("in", null="the work is not in flight", about="the function that the worker sleeps in"),
        Column("work", "address", hidden=True),
        Column("task", "address", hidden=True, null="no worker runs it"),
        Column("task_state", hidden=True, null="no worker runs it"),
        Column("task_age_ns", "ns", hidden=True, null="no worker runs it, or it is not known"),
        Column("age_ns", "ns", hidden=True, null="it is not known"),
        Column(
            "age_exact",
            "flag",
            hidden=True,
            null="the work is not in flight",
            about="false where it is at least so long",
        ),
        Column("rescuer", "flag", hidden=True),
        Column("description", hidden=True, null="the work has no description"),
        Column("behind", "objects", hidden=True, about="works that must wait for the same worker", fields=BEHIND),
        Column("flusher", "count", hidden=True, null="no task waits for it"),
        Column("stack", "objects", hidden=True, null="no worker runs it, or -v is not given", fields=FRAME),
    ),
)
QUEUES = Schema(
    "queues",
    "a part of a workqueue",
    (
        Column("workqueue", width=16),
        Column("pool", "count", width=4),
        Column("cpus", width=5),
        Column("active", "count"),
        Column("most", "count", title="MAX", null="it is not known", about="max_active"),
        Column("in_flight", "count", title="IN FLIGHT"),
        Column("pending", "count"),
        Column("inactive", "count"),
        Column("rescuer", "count", width=7, null="it has none"),
        Column("note", about="in words, or empty"),
        Column("flags", "count", hidden=True),
        Column("references", "count", hidden=True),
        Column("mayday", "flag", hidden=True, about="whether it waits for its rescuer"),
        Column("address", "address", hidden=True),
        Column("pool_workqueue", "address", hidden=True),
    ),
    when="where there are some",
)
POOLS = Schema(
    "pools",
    "a pool of workers",
    (
        Column("pool", "count", width=4),
        Column("cpus", width=5),
        Column("node", "count", null="it belongs to none"),
        Column("nice", "count", width=4),
        Column("flags", width=7),
        Column("workers", "count"),
        Column("idle", "count"),
        Column("waiting", "count"),
        Column(
            "since",
            title="BEGAN NONE FOR",
            null="no work waits, or it is not known",
            about="in words: how long it has begun no work",
        ),
        Column("manager", "count", null="no worker makes others"),
        Column("since_ns", "ns", hidden=True, null="it is not known"),
        Column("bits", "count", hidden=True, about="its flags"),
        Column("address", "address", hidden=True),
    ),
    when="where there are some",
)
DELAYED = Schema(
    "delayed",
    "a delayed work",
    (
        Column("due", width=8, null="it is not known", about="in words: the time until then"),
        Column("cpu", "count", width=3),
        Column("workqueue", width=16),
        Column("function"),
        Column("work", "address", hidden=True),
        Column("due_ns", "ns", hidden=True, null="it is not known", about="negative where it is late"),
    ),
    when="where there are some",
)
STACKS = (Column("line"),)
_FRAMES = 24


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the works, the parts of workqueues that have some, the pools that are at work, and the delayed works."""
    reader = Reader(kernel)
    if reader.symbol("workqueues") is None:
        raise UserError("the debug information lacks the list of workqueues", "drgn -s vmlinux of this kernel")
    processes = Processes(reader)
    found = Workqueues(processes)
    queues = [one for one in found.queues if args.name in (None, one.name)]
    if args.name is not None and not queues:
        raise UserError(f"no workqueue is called {args.name!r}", "workqueues -a lists all")
    parts = [(queue, part) for queue in queues for part in queue.parts if args.all or _is_busy(part)]
    shown = {part.pool.address for _queue, part in parts}
    pools = [one for one in found.pools if one.address in shown and (args.all or one.busy or one.waiting)]
    delayed = sorted(found.delayed(), key=lambda one: one.due if one.due is not None else 1 << 63)
    delayed = [one for one in delayed if args.name in (None, one.queue)]
    threads = processes.threads
    rows = [row for queue, part in parts for row in _rows(threads, queue, part, args.verbose)]
    footer = [] if rows else ["no work is in flight or waits"]
    report = Report([WORKS.table(rows, footer=footer)])
    if args.verbose:
        report.tables.extend(_stacks(threads, [one for _queue, part in parts for one in part.running]))
    if parts:
        report.tables.append(QUEUES.table([_part(queue, part) for queue, part in parts]))
    if pools:
        report.tables.append(POOLS.table([_pool(one) for one in pools]))
    if delayed:
        report.tables.append(DELAYED.table([_delayed(one) for one in delayed], title="delayed works:"))
    report.totals.update(
        in_flight=sum(len(part.running) for _queue, part in parts),
        pending=sum(one.number for _queue, part in parts for one in part.pending),
        inactive=sum(one.number for _queue, part in parts for one in part.inactive),
        delayed=len(delayed),
    )
    report.notes += [*dict.fromkeys(threads.notes), *reader.notes]
    return report


def _is_busy(part: Part) -> bool:
    """Return whether the kernel would show the part (show_one_workqueue()), or it has works."""
    return bool(part.active or part.running or part.pending or part.inactive)


def _rows(threads: Threads, queue: Queue, part: Part, stacks: bool) -> Iterator[tuple[Value, ...]]:
    """Yield the cells of WORKS: works in flight and those behind them, those that wait for a worker, inactive ones."""
    where = queue.name, part.pool.number, part.pool.cpus
    for one in part.running:
        yield _running(threads, where, one, stacks)
        for works in one.behind:
            yield _waiting(where, "behind", works, None)
    for number, works in enumerate(part.pending):
        # The pool's first work has waited since the pool began the last one. The others may be younger.
        age = part.pool.since if not number and works.address == part.pool.first else None
        yield _waiting(where, "pending", works, age)
    for works in part.inactive:
        yield _waiting(where, "inactive", works, None)


def _running(threads: Threads, where: tuple[str, int, str], one: Busy, stacks: bool) -> tuple[Value, ...]:
    task = one.task
    age = age_text(one.ran)
    sleeps = f"{one.wchan} ({one.state})" if one.wchan else {"R": "running"}.get(one.state, one.state)
    name = "softirq" if task is None else f"{task.comm}{' (rescuer)' if one.rescuer else ''}"
    behind = [
        {"function": each.function, "works": each.number, "pid": each.flusher.pid if each.flusher else None}
        for each in one.behind
    ]
    stack = _stack(threads, task) if stacks and task is not None else None
    return (
        *(*where, "in-flight", age if one.exact or age is None else f"{age}+", 1, one.function),
        *(task.pid if task else None, name, sleeps, one.work, task.address if task else None),
        *(one.state or None, one.age, one.ran, one.exact, one.rescuer, one.description or None, behind, None),
        stack,
    )


def _waiting(where: tuple[str, int, str], state: str, works: Works, age: Optional[int]) -> tuple[Value, ...]:
    flusher = works.flusher
    name = f"{flusher.comm} flushes" if flusher is not None else None
    return (
        *(*where, state, age_text(age), works.number, works.function, flusher.pid if flusher else None, name, None),
        *(works.address, None, None, None, age, None, False, None, [], flusher.pid if flusher else None, None),
    )


def _stack(threads: Threads, task: Task) -> list[dict[str, Any]]:
    stack = threads.stack(task, _FRAMES)
    return task_frames(threads, stack, frame_remarks(threads, stack.frames))


def _stacks(threads: Threads, running: list[Busy]) -> Iterator[Table]:
    """Yield the stack of each worker as text."""
    for one in running:
        if one.task is not None:
            lines = [(f"  {frame['name']}",) for frame in _stack(threads, one.task)]
            title = f"{one.task.comm} ({one.task.pid}) runs {one.function}:"
            yield Table("stack", STACKS, lines, style="plain", title=title, only="text")


def _part(queue: Queue, part: Part) -> tuple[Value, ...]:
    notes = ["max_active reached"] if part.inactive else []
    notes += ["waits for its rescuer"] if part.mayday else []
    return (
        *(queue.name, part.pool.number, part.pool.cpus, part.active, part.most, len(part.running)),
        *(sum(one.number for one in part.pending), sum(one.number for one in part.inactive)),
        *(queue.rescuer.pid if queue.rescuer else None, ", ".join(notes)),
        *(queue.flags, part.references, part.mayday, queue.address, part.address),
    )


def _pool(pool: Pool) -> tuple[Value, ...]:
    since = pool.since if pool.waiting else None
    return (
        *(pool.number, pool.cpus, pool.node, pool.nice, ", ".join(pool.flags), pool.workers, pool.idle, pool.waiting),
        *(age_text(since), pool.manager.pid if pool.manager else None, pool.since, pool.bits, pool.address),
    )


def _delayed(one: Delayed) -> tuple[Value, ...]:
    late = one.due is not None and one.due < 0
    due = f"-{age_text(-(one.due or 0))}" if late else age_text(one.due)
    return due, one.cpu, one.queue, one.function, Address(one.address), one.due


TOTALS = (
    Column("in_flight", "count"),
    Column("pending", "count"),
    Column("inactive", "count"),
    Column("delayed", "count"),
)


COMMAND = Command(
    name="workqueues",
    summary="works in flight and works that wait: by workqueue and pool, since when, and which worker sleeps in what",
    description="""A work is in flight while a worker runs it, pending while it waits for a worker, and inactive while
its workqueue has as many active works as it may have (MAX: max_active). FOR is how long a work has run. A + means
"at least", because many kernels do not note when a work began. For the first pending work, FOR is how long its pool
has begun no work. IN is the function that the worker sleeps in, and the state of its task. A work with the function
wq_barrier_func is a barrier: a task that flushes waits for the works before it. A work that is listed behind one in
flight must wait for the same worker. Delayed works follow, with the time until they are due; a minus means late. A work
of queue_rcu_work() is not in a list until RCU's grace period has ended.""",
    run=run,
    tables=(WORKS, QUEUES, POOLS, DELAYED),
    totals=TOTALS,
    arguments=(
        Argument("name", metavar="NAME", nargs="?", help="only this workqueue"),
        Argument("-a", "--all", action="store_true", help="also workqueues and pools without works"),
        Argument("-v", "--verbose", action="store_true", help="also the stacks of the workers that run works"),
    ),
    requires=(KERNEL,),
    examples=(
        ("workqueues", "which worker is stuck, and what waits behind it"),
        ("workqueues -v events", "the works of one workqueue, with the stacks of its workers"),
    ),
)
