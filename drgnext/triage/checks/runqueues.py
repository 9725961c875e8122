"""CPUs that did not schedule: soft lockups, and tasks that wait for a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.runqueues import run_queues
from drgnext.triage.facts import KernelFacts

_STARVED = 20_000_000_000  # ns: watchdog_thresh * 2 (kernel/watchdog.c)


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the CPUs where a task that can run has waited for 20 s, behind one that runs in the kernel."""
    found = list(run_queues(facts.lister))
    waits = [one.age or 0 for queue in found for one in queue.tasks if not one.running]
    longest = f", one of them for {age_text(max(waits))}" if waits else ""
    yield Measured(f"{len(waits)} tasks wait for {len(found)} CPUs{longest}")
    for queue in found:
        waiting = [one for one in queue.tasks if not one.running and (one.age or 0) >= _STARVED]
        current = queue.current
        if not waiting or current is None:
            continue
        oldest = max(waiting, key=lambda one: one.age or 0)
        yield Finding(
            "cpu-stuck",
            SERIOUS,
            LIKELY,
            f"CPU {queue.cpu} runs {current.comm} ({current.pid}), and {len(waiting)} tasks have waited for it for up "
            f"to {age_text(oldest.age)}",
            "look at what the running task does: it did not call the scheduler",
            [Evidence(current.address, f"task {current.comm} ({current.pid})")],
            (f"findstack {current.pid}", "runq"),
            weight=(oldest.age or 0) // 1_000_000,
            alternative="the hypervisor gave the CPU no time: for that speaks steal time",
        )


CHECK = Check("runqueues", "a task that can run has waited for a CPU for 20 s", run, seconds=30)
