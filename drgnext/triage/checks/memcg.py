"""Memory cgroups at their limit."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.memcgs import memory_groups
from drgnext.triage.facts import KernelFacts

_FULL = 0.98
_KEPT = 0.9  # of the limit is no page cache: a group that only fills its limit with files is well


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the groups that use all of their limit for memory that cannot be dropped."""
    page = facts.lister.page
    groups = memory_groups(facts.reader, facts.threads)
    shares = [group.current / group.limit for group in groups if group.limit and group.online]
    most = f", the fullest at {max(shares):.0%}" if shares else ""
    yield Measured(f"{len(shares)} of {len(groups)} groups have a limit{most}")
    for group in groups:
        if not group.limit or group.current < _FULL * group.limit or not group.online:
            continue
        inside = f"{group.path.rstrip('/')}/"
        files = sum(each.files for each in groups if each is group or each.path.startswith(inside))
        if group.current - files < _KEPT * group.limit:
            continue
        failed = f"; its limit was hit {group.failed:,} times" if group.failed else ""
        failed += f", and the OOM killer was called {group.oom:,} times" if group.oom else ""
        yield Finding(
            "memcg-full",
            SERIOUS,
            CERTAIN if group.failed or group.oom else LIKELY,
            f"the memory cgroup {group.path} uses {human_size(group.current * page)} of its limit of "
            f"{human_size(group.limit * page)}, {_part(files, page)}, with {_count(group.processes)}{failed}",
            "raise memory.max, or find what grows in these processes",
            [Evidence(group.address, f"struct mem_cgroup of {group.path}")],
            ("memcgs", "ps"),
            weight=group.current * page,
            alternative="the limit is too low for the load: its processes hold what they should",
        )


def _part(files: int, page: int) -> str:
    return f"of which {human_size(files * page)} can be dropped" if files else "of which nothing can be dropped"


def _count(processes: int) -> str:
    return f"{processes} process{'' if processes == 1 else 'es'}"


CHECK = Check("memcg", "a memory cgroup uses 98 % of its limit, and 90 % are not page cache", run, seconds=30)
