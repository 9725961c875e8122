"""Requests that a disk does not finish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.kernel.system.ages import age_text
from drgnext.kernel.system.requests import Request, disks
from drgnext.triage.facts import KernelFacts

_OLD = 3_000_000_000  # ns: a disk that works answers in milliseconds
_SURE = 10_000_000_000


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the disks whose oldest request is more than three seconds old."""
    found = list(disks(facts.reader))
    count = sum(len(disk.requests) for disk in found)
    age = max((request.age or 0 for disk in found for request in disk.requests), default=0)
    yield Measured(f"{count} requests in flight{f', the oldest for {age_text(age)}' if count else ''}")
    for disk in found:
        old = [request for request in disk.requests if (request.age or 0) >= _OLD]
        if old:
            oldest = max(old, key=lambda request: request.age or 0)
            yield Finding(
                "stuck-disk",
                SERIOUS,
                CERTAIN if (oldest.age or 0) >= _SURE else LIKELY,
                f"{disk.name} has {_count(disk.requests)} in flight, the oldest ({oldest.operation} of "
                f"{oldest.size:,} bytes at sector {oldest.sector}) for {age_text(oldest.age)}",
                "look at the device and its path: the driver has the request and did not finish it",
                [
                    Evidence(oldest.address, "the oldest request"),
                    Evidence(disk.address, f"struct gendisk of {disk.name}"),
                ],
                ("inflight", "locks"),
                weight=(oldest.age or 0) // 1_000_000,
                alternative="the device answered, and its interrupt was lost: irq shows whether its count grows",
            )


def _count(requests: Sequence[Request]) -> str:
    return "1 request" if len(requests) == 1 else f"{len(requests)} requests"


CHECK = Check("requests", "a request that a driver has had for 3 s", run, seconds=30)
