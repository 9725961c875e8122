"""Works that wait for workers which do not go on."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import LIKELY, SERIOUS, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.workqueues import Busy, Waiting
from drgnext.triage.facts import KernelFacts

_LIMIT = 30_000_000_000  # ns: workqueue.watchdog_thresh (kernel/workqueue.c)
_NAMED = 3


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the pools that begin no work, and the workqueues whose works all do not end, for 30 s."""
    if facts.reader.symbol("workqueues") is None:
        raise CannotCheck("the debug information lacks the list of workqueues")
    found = facts.waiting_works
    yield Measured(f"{sum(one.works for one in found)} works wait")
    for one in found:
        if one.age is None:
            age = min((worker.ran or 0 for worker in one.workers), default=0)
        else:
            age = 0 if one.cpu in facts.standing else one.age
        if age - facts.late >= _LIMIT:
            yield _blocked(one, age)


def _blocked(one: Waiting, age: int) -> Finding:
    works = f"{one.works} {'work waits' if one.works == 1 else 'works wait'} ({', '.join(one.functions[:_NAMED])})"
    pool = "an unbound pool of workers" if one.cpu is None else f"the workers of CPU {one.cpu}"
    where = f"in the workqueue {one.name}" if one.age is None else f"for {pool}, which began no other"
    workers = "; ".join(_worker(worker) for worker in one.workers[:_NAMED])
    more = f" and {len(one.workers) - _NAMED} more" if len(one.workers) > _NAMED else ""
    behind = f", behind {workers}{more}" if workers else ", and no worker is busy"
    tasks = [worker.task for worker in one.workers if worker.task is not None]
    evidence = [Evidence(task.address, f"task {task.comm} ({task.pid})") for task in tasks]
    kind = "struct pool_workqueue" if one.age is None else "struct worker_pool"
    return Finding(
        "workqueue-blocked",
        SERIOUS,
        LIKELY,
        f"{works} {where} for {age_text(age)}{behind}",
        "look at what the work that runs waits for",
        [Evidence(one.address, kind), *evidence[:_NAMED]],
        ("workqueues", *(f"findstack {task.pid}" for task in tasks[:_NAMED])),
        weight=age // 1_000_000,
        subject=one.name,
        alternative="the work is well and only slow; the time is evidence against this",
    )


def _worker(worker: Busy) -> str:
    if worker.task is None:
        return f"{worker.function} in a softirq"
    task = f"{worker.function} of {worker.task.comm} ({worker.task.pid})"
    if worker.state == "R":
        ran = f"has run for {'' if worker.exact else 'at least '}{age_text(worker.ran)}"
        return f"{task}, which {'can run' if worker.ran is None else ran}"
    where = f" in {worker.wchan}" if worker.wchan not in ("", "process_one_work") else ""
    return f"{task}, which has slept{where} for {age_text(worker.age)}"


CHECK = Check(
    "workqueues", "works wait for 30 s, and no worker begins or ends one", run, needs=("cause", "processes"), seconds=60
)
