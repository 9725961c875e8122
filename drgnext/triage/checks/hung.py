"""Tasks that hang: in uninterruptible sleep for long, behind a lock whose holder does not go on, or in a deadlock."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Parties, Said
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.locks import Wait
from drgnext.kernel.system.processes import Process
from drgnext.triage.facts import KernelFacts

_LONG = 120_000_000_000  # ns: hung_task_timeout_secs (kernel/hung_task.c)
_BEHIND = 10_000_000_000  # ns behind a lock
# ... and where its holder sleeps in a way that signals end: it waits for something outside the kernel.
_BEHIND_SLEEPER = 2_000_000_000
_NAMED = 4
#: A frozen control group, and a parent that waits for its child of vfork().
_BY_DESIGN = ("__refrigerator", "kernel_clone", "_do_fork", "wait_for_vfork_done")


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield deadlocks, then locks with tasks behind them, then other tasks that sleep for long."""
    stuck = [one for one in facts.processes if one.state == "D"]
    oldest = max((one.age or 0 for one in stuck if not one.kernel_thread), default=0)
    yield Measured(f"{len(stuck)} tasks in uninterruptible sleep{f', for up to {age_text(oldest)}' if oldest else ''}")
    behind: dict[int, list[tuple[Process, list[Wait]]]] = {}
    cycles: set[frozenset[int]] = set()
    others: list[Process] = []
    for one in stuck:
        chain, deadlock = facts.locks.chain(one.task)
        if deadlock:
            members = frozenset(wait.task.pid for wait in chain)
            if members not in cycles:
                cycles.add(members)
                yield _deadlock(chain)
        elif chain and chain[0].owner is not None:
            behind.setdefault(chain[-1].lock, []).append((one, chain))
        elif (one.age or 0) >= _LONG and not one.kernel_thread and one.wchan not in _BY_DESIGN:
            others.append(one)
    for waiting in behind.values():
        owner = waiting[0][1][-1].owner
        state = next((one.state for one in facts.processes if owner is not None and one.task.pid == owner.pid), "")
        if max(one.age or 0 for one, _chain in waiting) >= (_BEHIND_SLEEPER if state == "S" else _BEHIND):
            yield _held(facts, waiting)
    if others:
        yield _asleep(others)


def _deadlock(chain: list[Wait]) -> Finding:
    links = [f"{_name(wait.task)} waits for a {wait.kind} of {_name(wait.owner)}" for wait in chain[:_NAMED]]
    return Finding(
        "deadlock",
        SERIOUS,
        CERTAIN if all(wait.sure for wait in chain) else LIKELY,
        f"{len(chain)} tasks wait for each other's locks: {'; '.join(links)}",
        "take these locks in one order everywhere: lockdep (CONFIG_PROVE_LOCKING) names both orders",
        [Evidence(wait.lock, f"{wait.kind} {wait.name}".strip()) for wait in chain[:_NAMED]],
        ("locks", *(f"findstack {wait.task.pid}" for wait in chain[:2])),
        weight=1 << 50,
        alternative="one of the locks was overwritten; an owner that does not sleep would be evidence for this",
    )


def _held(facts: KernelFacts, waiting: list[tuple[Process, list[Wait]]]) -> Finding:
    oldest, chain = max(waiting, key=lambda each: each[0].age or 0)
    wait = chain[-1]
    owner = wait.owner
    where = f", which sleeps in {facts.lister.wchan(owner)}" if owner is not None and facts.lister.wchan(owner) else ""
    tasks = f"{len(waiting)} tasks wait" if len(waiting) > 1 else f"{_name(oldest.task)} waits"
    return Finding(
        "lock-held",
        SERIOUS,
        CERTAIN if wait.sure else LIKELY,
        f"{tasks} for up to {age_text(oldest.age)} behind a {wait.kind} of {_name(owner)}{where}",
        "look at what the holder waits for",
        [Evidence(wait.lock, f"{wait.kind} {wait.name}".strip())],
        ("locks", f"findstack {owner.pid}" if owner is not None else "stacks"),
        weight=(oldest.age or 0) // 1_000_000,
        alternative="the holder is well and only slow; the time is evidence against this",
        parties=Parties(holds=_name(owner)),
    )


def _asleep(others: list[Process]) -> Finding:
    oldest = max(others, key=lambda one: one.age or 0)
    count = f"{len(others)} tasks are" if len(others) > 1 else "a task is"
    place = f" in {oldest.wchan}" if oldest.wchan else ""
    return Finding(
        "hung-task",
        SERIOUS,
        LIKELY,
        f"{count} in uninterruptible sleep for more than two minutes; {_name(oldest.task)} for "
        f"{age_text(oldest.age)}{place}",
        "look at the device or the server that it waits for",
        [Evidence(oldest.task.address, f"task {_name(oldest.task)}")],
        (f"findstack {oldest.task.pid}", "inflight"),
        weight=(oldest.age or 0) // 1_000_000,
        alternative="the wake-up was lost in the kernel; an idle device would be evidence for this",
    )


def _name(task: Task | None) -> str:
    return f"{task.comm} ({task.pid})" if task is not None else "an unknown task"


CHECK = Check(
    "hung",
    "a deadlock of locks; 10 s behind a lock (2 s, if its holder sleeps); 2 minutes in uninterruptible sleep",
    run,
    needs=("processes",),
    seconds=60,
)
