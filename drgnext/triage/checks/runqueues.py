"""CPUs that did not schedule: soft lockups, and tasks that wait for a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmods.finding import LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.stacks.tasks import Task
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.runqueues import Queued, RunQueue
from drgnext.triage.facts import KernelFacts


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the CPUs where a task that can run has waited for 20 s, unless the check "lockups" tells of the CPU."""
    waits = [one.age or 0 for queue in facts.queues for one in queue.tasks if not one.running]
    longest = f", one of them for {age_text(max(waits))}" if waits else ""
    yield Measured(f"{len(waits)} tasks wait for {len(facts.queues)} CPUs{longest}")
    hanging = {stall.cpu for stall in facts.stalled}
    for queue in facts.queues:
        waiting = facts.starved.get(queue.cpu)
        if waiting and queue.current is not None and queue.cpu not in hanging:
            yield _starved(facts, queue, queue.current, waiting)


def _starved(facts: KernelFacts, queue: RunQueue, current: Task, waiting: Sequence[Queued]) -> Finding:
    oldest = max(waiting, key=lambda one: one.age or 0)
    tasks = "1 task has" if len(waiting) == 1 else f"{len(waiting)} tasks have"
    waited = f"{tasks} waited for it for up to {age_text(oldest.age)}"
    of_oldest = Evidence(oldest.task.address, f"task {oldest.task.comm} ({oldest.task.pid})")
    if not current.pid:
        return Finding(
            "cpu-idle",
            SERIOUS,
            LIKELY,
            f"CPU {queue.cpu} is idle, and {waited}",
            "look at why the CPU was not told to schedule: a lost interrupt between CPUs, or a CPU that does not wake",
            [of_oldest],
            ("runq", f"findstack {oldest.task.pid}"),
            weight=(oldest.age or 0) // 1_000_000,
            alternative="the hypervisor gave the CPU no time; steal time would be evidence for this",
        )
    first = f", a realtime task ({queue.realtime})" if queue.realtime else ""
    works = facts.works_of(queue.cpu)
    too = f", and {works} {'work waits' if works == 1 else 'works wait'} for its workers" if works else ""
    return Finding(
        "cpu-stuck",
        SERIOUS,
        LIKELY,
        f"CPU {queue.cpu} runs {current.comm} ({current.pid}){first}{_why(facts, queue)}, and {waited}{too}",
        f"look at what the running task does: it {'leaves others no time' if first else 'did not call the scheduler'}",
        [Evidence(current.address, f"task {current.comm} ({current.pid})"), of_oldest],
        (f"findstack {current.pid}", "runq"),
        weight=(oldest.age or 0) // 1_000_000,
        alternative="the hypervisor gave the CPU no time; steal time would be evidence for this",
    )


def _why(facts: KernelFacts, queue: RunQueue) -> str:
    """Return what the running task waits for as it keeps its CPU, in words that follow its name."""
    spin = facts.stalls.spin(queue)
    if spin is not None:
        return f", which waits for the spinlock {spin.name}".rstrip()
    answer = next((one for one in facts.answers if one.cpu == queue.cpu), None)
    if answer is not None:
        return f", which waits for another CPU to answer its call ({answer.function})"
    stack = facts.stalls.stack(queue)
    if stack is None or not stack.frames:
        return ""
    context, places = facts.stalls.context(queue.cpu, stack), facts.threads.places
    return f"{f', {context},' if context else ''} in {places.describe(places.inside(stack.frames[0]))}"


CHECK = Check(
    "runqueues",
    "a task that can run has waited 20 s for a CPU that stays with another one",
    run,
    needs=("cause",),
    seconds=30,
)
