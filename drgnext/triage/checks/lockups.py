"""CPUs that hang: they take no interrupts, or run no softirqs, while the others go on."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.stacks.frames import ENDS
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.stalls import INTERRUPTS, LIMIT, SOFTIRQS, Stall
from drgnext.triage.facts import KernelFacts

_STALLED = 21_000_000_000  # ns: rcu_cpu_stall_timeout (lib/Kconfig.debug)
_CALLERS = 3
_NAMED = 4
_LOCK = "look at who holds the lock: the other CPUs that hang, then who else takes it"
_LOOP = "look at the loop in this function or in its callers, and at what it waits for"


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the CPUs that hang, then the grace period of RCU that waits for other CPUs."""
    found = facts.stalled
    seen = len(facts.stalls.seen)
    if not seen or facts.lister.clocks.monotonic is None:
        raise CannotCheck("the dump lacks the clocks or the timers of all CPUs")
    yield Measured(f"{len(found)} of {seen} CPUs hang" if found else f"{seen} CPUs go on")
    for stall in found:
        yield _hangs(facts, stall)
    yield from _grace_period(facts)
    dark = facts.stalls.dark if facts.cause.died is False and not found and facts.stalls.all_dark else ()
    if dark:
        places = ", ".join(f"CPU {stall.cpu} {_place(facts, stall)[0]}" for stall in dark[:_NAMED])
        raise CannotCheck(
            f"all CPUs had interrupts off, so no clock tells for how long: {places}",
            "make a second dump some seconds later: a machine that hangs is in the same functions",
        )


def _hangs(facts: KernelFacts, stall: Stall) -> Finding:
    place, evidence = _place(facts, stall)
    task = f"{stall.task.comm} ({stall.task.pid})" if stall.task is not None else "an unknown task"
    queue = next((one for one in facts.queues if one.cpu == stall.cpu), None)
    # Softirqs wait for a realtime task as all others do. Of interrupts it keeps none.
    first = f", a realtime task ({queue.realtime})," if queue and queue.realtime and stall.lacks == SOFTIRQS else ""
    if stall.task is not None:
        evidence.append(Evidence(stall.task.address, f"task {task}"))
    wait = ""
    if stall.spin is not None:
        lock = f" {stall.spin.name}" if stall.spin.name else ""
        wait = f", waiting for the spinlock{lock}, whose holder the kernel does not note"
        if stall.spin.lock is not None:
            evidence.append(Evidence(stall.spin.lock, f"spinlock{lock}"))
    or_ = (
        "the host gave this virtual CPU no time; steal time, and a pc where the code can continue, would be evidence "
        "for this"
    )
    if stall.age is None and stall.spin is None:
        or_ = "somebody halted the machine; native_machine_halt among the callers would be evidence for this"
    return Finding(
        f"cpu-no-{stall.lacks}",
        SERIOUS,
        CERTAIN if stall.stack is not None and stall.stack.frames else LIKELY,
        f"CPU {stall.cpu} {_lacks(stall)}: it runs {task}{first} {place}{wait}{_waiters(facts, stall)}",
        _LOCK if stall.spin is not None else _LOOP,
        evidence,
        (f"findstack {stall.task.address:#x}" if stall.task is not None else "stacks", "timers", "runq"),
        # Who waits for a lock hangs because of another one, which comes first.
        weight=(stall.age or 0) // 1_000_000 + (0 if stall.spin is not None else 1 << 40),
        alternative=or_,
    )


def _lacks(stall: Stall) -> str:
    """Return what the CPU does not do, for how long, and where, in words that follow "CPU 1"."""
    if stall.age is not None:
        lacks = "takes no interrupts" if stall.lacks == INTERRUPTS else "runs no softirqs"
        return f"{lacks} for at least {age_text(stall.age)}{f', {stall.context}' if stall.context else ''}"
    if stall.spin is not None:
        return "waits for a spinlock with interrupts off, and no CPU is left to release it"
    return "halts with interrupts off, and no interrupt ends that"


def _place(facts: KernelFacts, stall: Stall) -> tuple[str, list[Evidence]]:
    """Return the function that the CPU runs with its callers, and the pc."""
    if stall.stack is None or not stall.stack.frames:
        why = ENDS[stall.stack.end] if stall.stack is not None else "its stack cannot be read"
        return f"({why})", []
    places = facts.threads.places
    frames = stall.stack.frames
    pc = places.inside(frames[0])
    names = [places.describe(places.inside(frame)).partition("+")[0] for frame in frames[1 : 1 + _CALLERS]]
    callers = f", called by {', '.join(names)}" if names else ""
    return f"in {places.describe(pc)}{callers}", [Evidence(pc, places.describe(pc))]


def _waiters(facts: KernelFacts, stall: Stall) -> str:
    """Return who waits for the CPU, in words that follow a sentence, "" if nobody does."""
    parts = []
    queue = next((one for one in facts.queues if one.cpu == stall.cpu), None)
    tasks = sum(1 for one in queue.tasks if not one.running) if queue is not None else 0
    if tasks:
        parts.append(f"{tasks} {'task' if tasks == 1 else 'tasks'} that can run")
    if stall.calls:
        callers = [f"CPU {one.cpu} in {one.function}" for one in facts.answers if one.cpu != stall.cpu]
        by = f" (waiting: {', '.join(callers)})" if callers else ""
        parts.append(f"{stall.calls} {'call' if stall.calls == 1 else 'calls'} from other CPUs{by}")
    works = facts.works_of(stall.cpu)
    if works:
        parts.append(f"{works} {'work' if works == 1 else 'works'} of workqueues")
    period = facts.grace_period
    if period is not None and stall.cpu in period.cpus:
        parts.append(f"RCU's grace period for {age_text(period.age)}" if period.age else "RCU's grace period")
    return f"; waiting for it: {', '.join(parts)}" if parts else ""


def _grace_period(facts: KernelFacts) -> Iterator[Finding]:
    period = facts.grace_period
    if period is None or (period.age or 0) - facts.late < _STALLED:
        return
    told = facts.standing & set(period.cpus)
    cpus = [cpu for cpu in period.cpus if cpu not in told]
    if (told and not period.tasks) or not (cpus or period.tasks):
        return  # another finding tells of it, or RCU's own thread has not run yet
    waits = [f"CPU {', '.join(map(str, cpus))}"] if cpus else []
    waits += [_reader(facts, address) for address in period.tasks[:_NAMED]]
    if len(period.tasks) > _NAMED:
        waits.append(f"{len(period.tasks) - _NAMED} more tasks")
    yield Finding(
        "rcu-stall",
        SERIOUS,
        LIKELY,
        f"RCU's grace period has waited {age_text(period.age)} for {' and '.join(waits)}",
        "look at these stacks: a reader of RCU does not end, or a loop does not call cond_resched()",
        [Evidence(address, "task in a reader of RCU") for address in period.tasks[:_NAMED]],
        (*(f"findstack {address:#x}" for address in period.tasks[:_NAMED]), "stacks", "runq"),
        weight=(period.age or 0) // 1_000_000,
        alternative="RCU's own thread got no CPU: runq shows whether it waits",
    )


def _reader(facts: KernelFacts, address: int) -> str:
    task = facts.threads.tasks.at(address)
    if task is None:
        return f"the task at {address:#x}"
    if task.on_cpu:
        return f"{task.comm} ({task.pid}), a reader that runs"
    return f"{task.comm} ({task.pid}), a reader that sleeps in {facts.lister.wchan(task) or 'an unknown function'}"


CHECK = Check(
    "lockups",
    f"a CPU takes no interrupts or runs no softirqs for {LIMIT // 1_000_000_000} s, or halts with interrupts off; "
    "RCU's grace period lasts 21 s",
    run,
    needs=("cause",),
    seconds=60,
)
