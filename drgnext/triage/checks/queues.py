"""Disks that take fewer requests than tasks want to give them."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.queues import BUFFERED, OTHER, RAW, Queue, queues
from drgnext.triage.facts import KernelFacts

_MANY = 4  # tasks that wait for a place
_LONG = 100_000_000  # ns: a disk that keeps up has a place in milliseconds
_SURE = 1_000_000_000
_FULL = 0.9  # of what the device takes


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the disks whose queue is full, with tasks that wait for a place in it."""
    found = list(queues(facts.reader))
    deepest = max((len(one.disk.requests) / one.depth for one in found if one.depth), default=0.0)
    yield Measured(f"{len(found)} queues, the fullest at {deepest:.0%} of its depth")
    for one in found:
        if len(one.waiting) + len(one.queued) < _MANY or len(one.disk.requests) < _FULL * one.depth:
            continue
        tasks = set(one.waiting)
        waiting = [each for each in facts.processes if each.task.address in tasks]
        longest = max(waiting, key=lambda each: each.age or 0, default=None)
        age = max([each.age or 0 for each in waiting] + [each or 0 for each in one.queued], default=0)
        if age < _LONG:
            continue
        oldest = max((request.age or 0 for request in one.disk.requests), default=0)
        yield Finding(
            "queue-full",
            SERIOUS,
            CERTAIN if age >= _SURE else LIKELY,
            f"{one.disk.name} has all the {one.depth} requests that it takes ({_whose(one)}), the oldest for "
            f"{age_text(oldest)}; {_behind(one)} wait for a place, the longest for {age_text(age)}",
            "the disk is slower than its load: look below it; a deeper queue only hides it",
            [
                Evidence(one.disk.address, f"struct gendisk of {one.disk.name}"),
                *(
                    [Evidence(longest.task.address, f"{longest.task.comm} ({longest.task.pid}) waits")]
                    if longest
                    else []
                ),
            ],
            (f"disks {one.disk.name}", "inflight", *([f"findstack {longest.task.pid}"] if longest else [])),
            weight=len(one.waiting) + len(one.queued),
            alternative="a short burst; the time that the oldest has waited is evidence against this",
            subject=one.disk.name,
        )


def _behind(one: Queue) -> str:
    parts = [f"{len(one.queued)} requests in the scheduler"] if one.queued else []
    return " and ".join([*parts, f"{len(one.waiting)} tasks"] if one.waiting else parts)


def _whose(one: Queue) -> str:
    names = {RAW: "raw", BUFFERED: "buffered", OTHER: "of the kernel"}
    return ", ".join(f"{one.pages[kind]} {name}" for kind, name in names.items() if one.pages[kind])


CHECK = Check(
    "queues",
    "a disk has all the requests that it takes, and 4 requests or tasks wait for a place, one of them for 0.1 s",
    run,
    needs=("processes",),
    seconds=30,
)
