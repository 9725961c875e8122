"""The memory of a machine against thresholds: none available, swap used up, killed by the OOM killer, page tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, POSSIBLE, SERIOUS, WASTE, Check, Finding, Measured, Said
from drgnext.kernel.system.memcgs import memory_groups
from drgnext.triage.facts import KernelFacts

AVAILABLE = 0.03  # of all memory
_SWAP_FREE = 0.05
_UNRECLAIMABLE = 0.25
_TABLES = 0.05
_NAMED = 3
_LEAST = 256 << 20  # bytes: a kernel's share counts from here


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield what is short, and what took it."""
    lines = facts.meminfo
    total, available = lines.get("MemTotal", 0), lines.get("MemAvailable")
    if not total:
        return
    killed = facts.event("OOM_KILL")
    yield _measured(lines, killed)
    largest = sorted(facts.processes, key=lambda one: -(one.rss + one.swap))
    top = [one for one in largest if one.task.pid == one.task.tgid][:3]
    named = ", ".join(f"{one.task.comm} ({one.task.pid}) {human_size(one.rss + one.swap)}" for one in top if one.rss)
    if killed:
        yield Finding(
            "oom-kill",
            SERIOUS,
            CERTAIN,
            f"the OOM killer ended {killed} task{'' if killed == 1 else 's'} since boot{_groups(facts)}; "
            f"the largest now: {named}",
            "the log says which: give the machine memory, or bound the largest process by a memory cgroup",
            next=("dmesg", "memcgs", "ps"),
            weight=killed,
            alternative="no process grew: a memory cgroup or the machine is too small for the load",
        )
    if available is not None and available < AVAILABLE * total:
        yield Finding(
            "memory-short",
            SERIOUS,
            CERTAIN,
            f"{human_size(available)} of {human_size(total)} of memory are available; the largest processes: {named}",
            "find what holds the memory: memstat -v says which kind of pages",
            next=("memstat -v", "ps"),
            weight=total - available,
            alternative="the kernel holds it, and no process: memstat has its share",
        )
    swap, free = lines.get("SwapTotal", 0), lines.get("SwapFree", 0)
    if swap and free < _SWAP_FREE * swap:
        yield Finding(
            "swap-full",
            SERIOUS,
            CERTAIN,
            f"{human_size(swap - free)} of {human_size(swap)} of swap are used",
            "add memory, or find the process whose pages are there",
            next=("swapinfo", "ps"),
            weight=swap - free,
            alternative="the pages in swap are never used again: then they cost nothing, as long as there is room",
        )
    for name, share, kind, what in (
        ("SUnreclaim", _UNRECLAIMABLE, "slab-unreclaimable", "slab memory that cannot be reclaimed"),
        ("PageTables", _TABLES, "page-tables", "page tables"),
    ):
        size = lines.get(name, 0)
        if size >= _LEAST and size >= share * total:
            yield Finding(
                kind,
                WASTE,
                LIKELY,
                f"{human_size(size)} of {human_size(total)} are {what}",
                "kmastat and findleaks name the caches" if kind.startswith("slab") else "ps shows who maps so much",
                next=("kmastat", "findleaks") if kind.startswith("slab") else ("ps", "memstat -v"),
                weight=size,
                remedy_confidence=POSSIBLE,
                alternative="the load needs it: compare with a dump of a day when all was well (growth)",
            )


def _measured(lines: dict[str, int], killed: Optional[int]) -> Measured:
    """Return the shares that have thresholds."""
    total, swap = lines["MemTotal"], lines.get("SwapTotal", 0)
    shares = [
        f"{lines[name] / total:.0%} {what}"
        for name, what in (
            ("MemAvailable", "available"), ("SUnreclaim", "unreclaimable slabs"), ("PageTables", "page tables"),
        )
        if name in lines
    ]  # fmt: skip
    used = f"; {1 - lines.get('SwapFree', 0) / swap:.0%} of swap used" if swap else "; no swap"
    return Measured(f"{', '.join(shares)}{used}; {killed or 0} OOM kills")


def _groups(facts: KernelFacts) -> str:
    """Return the memory cgroups whose limit called the OOM killer."""
    called = [group for group in memory_groups(facts.reader, facts.threads) if group.oom]
    called.sort(key=lambda group: -group.oom)
    more = f" and {len(called) - _NAMED} more" if len(called) > _NAMED else ""
    names = ", ".join(group.path for group in called[:_NAMED])
    return f", for the limit of the memory cgroup {names}{more}" if called else ""


CHECK = Check(
    "memory",
    "3 % of memory or 5 % of swap are left; an OOM kill; a quarter in unreclaimable slabs; 5 % in page tables",
    run,
    needs=("processes",),
    seconds=60,
)
