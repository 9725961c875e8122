"""A process that has most of a machine's memory, where little is left: which of its mappings have it."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.errors import UserError
from dmods.finding import LIKELY, SERIOUS, CannotCheck, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.mappings import Mapping, largest
from drgnext.triage.facts import KernelFacts

_LEFT = 0.1  # of all memory: with more, a process may have what it likes
_SHARE = 0.4  # of all memory
_NAMED = 3


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the processes that have two fifths of the memory each, where less than a tenth is available."""
    total, available = facts.meminfo.get("MemTotal", 0), facts.meminfo.get("MemAvailable")
    if not total or available is None:
        return
    largest_one = max((one for one in facts.processes), key=lambda one: one.rss, default=None)
    if largest_one is not None:
        yield Measured(f"the largest process, {largest_one.task.comm}, has {largest_one.rss / total:.0%} of memory")
    if available >= _LEFT * total:
        return
    for process in facts.processes:
        task = process.task
        if task.pid != task.tgid or process.rss < _SHARE * total:
            continue
        mm = facts.threads.task_object(task).mm
        try:
            mappings = largest(facts.reader, mm, _NAMED)
        except UserError as error:
            raise CannotCheck(error.what) from None
        parts = ", ".join(f"{human_size(each.resident)} in {_name(facts, each)}" for each in mappings[:1])
        yield Finding(
            "process-holds",
            SERIOUS,
            LIKELY,
            f"{task.comm} ({task.pid}) has {human_size(process.rss)} of {human_size(total)} of memory"
            f"{f', {parts}' if parts else ''}; {human_size(available)} are available",
            "decide whether it should have so much; a memory cgroup bounds it",
            [Evidence(each.address, _evidence(facts, each)) for each in mappings],
            ("ps --top 10", "memstat -v"),
            weight=process.rss,
            alternative="it holds what it should, and the machine is too small for the load",
            subject=task.comm,
        )


def _evidence(facts: KernelFacts, each: Mapping) -> str:
    size = human_size(each.end - each.start)
    return f"{_name(facts, each)}: {human_size(each.resident)} of {size} in memory"


def _name(facts: KernelFacts, mapping: Mapping) -> str:
    """Return what a mapping is. The names of files are left out where they are private."""
    if mapping.name.startswith("["):
        return mapping.name
    if mapping.file:
        kind = "shared memory or a file" if mapping.shared else "a file"
        return kind if facts.private or not mapping.name else mapping.name
    return "anonymous memory"


CHECK = Check(
    "hogs",
    "less than 10 % of memory are available, and one process has 40 %: which of its mappings have it",
    run,
    needs=("processes",),
    seconds=60,
)
