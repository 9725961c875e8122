"""OpenZFS: a cache (ARC) that presses the memory of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.sizes import human_size
from dmods.finding import LIKELY, SERIOUS, CannotCheck, Check, Finding, Measured, Said
from drgnext.kernel.system.openzfs import cache, missing
from drgnext.triage.facts import KernelFacts

_LEFT = 0.1  # of all memory: with more, the ARC may have what it likes
_SHARE = 0.25  # of all memory


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the ARC, where it has a quarter of the memory and less than a tenth is available."""
    total, available = facts.meminfo.get("MemTotal", 0), facts.meminfo.get("MemAvailable")
    if not total or available is None:
        return
    yield Measured(f"{available / total:.0%} of memory are available")
    if available >= _LEFT * total:
        return
    why = missing(facts.reader)
    found = cache(facts.reader)
    if found is None:
        if why is not None and "is not loaded in this kernel" not in why:
            raise CannotCheck(why, "drgn -s zfs.ko, with its debug information")
        return
    if found.size is None or found.size < _SHARE * total:
        return
    # Linux counts no memory of the ARC as available. It shrinks to its target, and never below its least size.
    kept = found.lowest is not None and found.size <= found.lowest * 1.1
    yield Finding(
        "arc-presses",
        SERIOUS,
        LIKELY,
        f"the ARC of OpenZFS has {human_size(found.size)} of {human_size(total)} of memory (target "
        f"{_size(found.target)}, limits {_size(found.lowest)} to {_size(found.highest)}); "
        f"{human_size(available)} are available",
        "lower zfs_arc_min: the ARC may not shrink" if kept else "lower zfs_arc_max, so that programs have room",
        next=("zfs", "memstat -v"),
        weight=found.size,
        alternative="programs need more than there is, with or without a cache: look at the largest processes",
    )


def _size(value: Optional[int]) -> str:
    return human_size(value) if value is not None else "unknown"


CHECK = Check(
    "arc",
    "less than 10 % of memory are available, and the ARC of OpenZFS has 25 %",
    run,
    seconds=30,
)
