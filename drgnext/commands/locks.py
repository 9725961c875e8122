"""The tasks that wait for locks, and who holds the locks."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from dmods.command import KERNEL, Argument, Command
from dmods.report import Address, Column, Report, Schema, Table, Value
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.filelocks import FileLock, FileLocks
from drgnext.kernel.system.locks import Locks, Wait
from drgnext.kernel.system.processes import Process, Processes
from drgnext.kernel.system.reading import Reader

if TYPE_CHECKING:
    from drgnext.kernel.dump.target import Kernel
    from drgnext.kernel.stacks.tasks import Task

LINK = Schema(
    "link",
    "a lock that a task waits for",
    (
        Column("pid", "count", about="the task that waits"),
        Column("kind"),
        Column("lock", "address"),
        Column("lock_name", about="or empty"),
        Column("owner", "count", null="nobody holds it, or the lock does not say who"),
        Column("sure", "flag", about="false for the last holder that a lock names"),
    ),
)
WAITER = Schema(
    "waiter",
    "a process that waits for a lock on a file",
    (Column("pid", "count"), Column("name", null="it has ended")),
)
WAITING = Schema(
    "waiting",
    "a task in uninterruptible sleep; with -a also others that wait for a lock",
    (
        Column("pid", "count", width=7),
        Column("name", width=12),
        Column("age", width=6, null="it is not known", about="in words"),
        Column(
            "waits_for",
            title="WAITS FOR",
            width=9,
            null="it is not known",
            about="the kind of lock, or the function that sleeps",
        ),
        Column("lock", "address", width=16, null="it waits for no lock that is known"),
        Column("owner", "count", width=7, null="nobody holds it, or the lock does not say who"),
        Column("owner_name", title="NAME", null="nobody holds it, or the lock does not say who"),
        Column("task", "address", hidden=True),
        Column("kind", hidden=True, null="it waits for no lock that is known"),
        Column("lock_name", hidden=True, null="it waits for no lock that is known"),
        Column("wants", hidden=True, null="it waits for no lock that is known"),
        Column("readers", "count", hidden=True, null="it waits for no lock that is known"),
        Column(
            "sure",
            "flag",
            hidden=True,
            null="it waits for no lock that is known",
            about="false for the last holder that a lock names",
        ),
        Column("age_ns", "ns", hidden=True, null="it is not known"),
        Column("chain", "objects", hidden=True, about="the lock, then that for which its holder waits", fields=LINK),
        Column("deadlock", "flag", hidden=True),
    ),
)
HOLDERS = Schema(
    "holders",
    "a task at the end of such chains",
    (
        Column("pid", "count", width=7),
        Column("name", width=15),
        Column("state", title="ST"),
        Column("behind", "count", about="tasks whose chain ends there"),
        Column("sleeps_in", title="SLEEPS IN", about="a function, or empty"),
        Column("task", "address", hidden=True),
    ),
    when="where there is one",
)
CHAINS = (Column("chain"),)
FILES = Schema(
    "files",
    "a lock on a file; without -a one that somebody waits for",
    (
        Column("pid", "count", width=7),
        Column("name", width=12, null="the process has ended"),
        Column("kind", width=6),
        Column("access", width=6),
        Column("start", "count"),
        Column("end", "count", null="it goes to the end of the file"),
        Column("waiters", "count", title="WAIT", about="how many"),
        Column("file"),
        Column("address", "address", hidden=True),
        Column("waiting", "objects", hidden=True, fields=WAITER),
    ),
    when="where there are some",
)


def run(kernel: Kernel, args: argparse.Namespace) -> Report:
    """Return the waits of all stuck tasks, the holders at the ends of the chains, and the chains."""
    reader = Reader(kernel)
    processes = Processes(reader)
    locks = Locks(processes)
    everybody = list(processes.all(threads=True))
    stuck = [one for one in everybody if one.state == "D" or (args.all and one.state in "ST")]
    stuck = [one for one in stuck if one.state == "D" or locks.wait(one.task) is not None]
    stuck.sort(key=lambda one: (-(one.age or 0), one.task.pid))
    behind: Counter[int] = Counter()
    last: dict[int, Task] = {}
    rows, chains, waits, deadlocks = [], [], 0, 0
    for one in stuck:
        chain, deadlock = locks.chain(one.task)
        rows.append(_row(one, chain, deadlock))
        deadlocks += deadlock
        if chain:
            chains += [(line,) for line in _lines(chain, deadlock)]
            waits += 1
            end = chain[-1].owner
            if end is not None and not deadlock:
                behind[end.address] += 1
                last[end.address] = end
    holders = [_holder(processes, last[address], count) for address, count in behind.most_common()]
    footer = [] if rows else ["no task is in uninterruptible sleep" + (" or waits for a lock" if args.all else "")]
    report = Report([WAITING.table(rows, footer=footer)])
    if holders:
        report.tables.append(HOLDERS.table(holders, title="at the end of the chains:"))
    if chains:
        report.tables.append(Table("chains", CHAINS, chains, style="plain", title="who waits for whom:", only="text"))
    names = {one.task.pid: one.task.comm for one in everybody}
    files = [_file(each, names) for each in FileLocks(reader).all() if args.all or each.waiters]
    if files:
        title = "locks on files:" if args.all else "locks on files that somebody waits for:"
        report.tables.append(FILES.table(files, title=title))
    report.totals.update(stuck=len(stuck), locks=waits, deadlocked=deadlocks)
    report.notes += [*dict.fromkeys(processes.threads.notes), *reader.notes]
    return report


def _row(one: Process, chain: list[Wait], deadlock: bool) -> tuple[Value, ...]:
    """Return the cells of WAITING."""
    wait: Optional[Wait] = chain[0] if chain else None
    owner = wait.owner if wait else None
    waits = (f"{wait.kind} {wait.wants[:1]}".strip() if wait else one.wchan) or None
    return (
        *(one.task.pid, one.task.comm, age_text(one.age), waits, wait.lock if wait else None),
        *(owner.pid if owner else None, owner.comm if owner else None, one.task.address),
        *(wait.kind if wait else None, wait.name if wait else None, wait.wants if wait else None),
        *(wait.readers if wait else None, wait.sure if wait else None, one.age),
        *([_link(each) for each in chain], deadlock),
    )


def _file(lock: FileLock, names: Mapping[int, str]) -> tuple[Value, ...]:
    """Return the cells of FILES. A process that has ended has no name."""
    return (
        *(lock.pid, names.get(lock.pid), lock.kind, lock.access, lock.start, lock.end, len(lock.waiters), lock.path),
        *(lock.address, [{"pid": pid, "name": names.get(pid)} for pid in lock.waiters]),
    )


def _link(wait: Wait) -> dict[str, Any]:
    """Return a part of a chain for JSON."""
    return {
        "pid": wait.task.pid,
        "kind": wait.kind,
        "lock": Address(wait.lock),
        "lock_name": wait.name,
        "owner": wait.owner.pid if wait.owner else None,
        "sure": wait.sure,
    }


def _holder(processes: Processes, task: Task, count: int) -> tuple[Value, ...]:
    """Return the cells of HOLDERS."""
    state = processes.state(processes.threads.task_object(task))
    where = "" if task.on_cpu else processes.wchan(task)
    return task.pid, task.comm, state, count, where, task.address


def _lines(chain: list[Wait], deadlock: bool) -> list[str]:
    """Return a chain as lines: the task, then each lock and its holder."""
    lines = [f"{chain[0].task.comm} ({chain[0].task.pid})"]
    for depth, wait in enumerate(chain, 1):
        owner = f"{wait.owner.comm} ({wait.owner.pid})" if wait.owner else ""
        if wait.readers:
            last = f"the last to take it {owner}" if owner else "which it does not name"
            held = f"{wait.readers} reader{'' if wait.readers == 1 else 's'}, {last}"
        elif not owner:
            held = "which does not say who holds it" if wait.kind == "semaphore" else "which nobody holds now"
        else:
            held = f"held by {owner}" if wait.sure else f"last held by {owner}"
        lines.append(f"{'  ' * depth}{wait.kind} {wait.name or hex(wait.lock)}, {held}")
    return [*lines, "  a deadlock: the last holder waits for the first task"] if deadlock else lines


COMMAND = Command(
    name="locks",
    summary="tasks in uninterruptible sleep, the lock that each waits for, who holds it, and the chain behind that",
    description="""locks knows mutexes, rwsems (r: for reading, w: for writing), semaphores and rt_mutexes, and with
PREEMPT_RT also spinlocks and rwlocks. For any other wait it shows the function that sleeps. A rwsem that readers hold
names only the last reader that took it; with PREEMPT_RT it names no reader. A semaphore names a holder only in newer
kernels. BEHIND is the number of tasks whose chain ends at that holder.
Locks on files (flock, POSIX, leases) follow if a task waits for one; -a shows all, as /proc/locks does.""",
    run=run,
    tables=(WAITING, HOLDERS, FILES),
    totals=(
        Column("stuck", "count"),
        Column("locks", "count", about="tasks that wait for a lock"),
        Column("deadlocked", "count"),
    ),
    arguments=(
        Argument(
            "-a",
            "--all",
            action="store_true",
            help="also tasks in interruptible sleep that wait for a lock, and every lock on a file",
        ),
    ),
    requires=(KERNEL,),
    examples=(("locks", "what is stuck, and who is to blame"), ("locks --json", "with the chain of each task")),
)
