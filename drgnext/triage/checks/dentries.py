"""Names of files that do not exist, which fill the dentry cache."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.finding import CERTAIN, WASTE, Check, Finding, Measured, Said
from drgnext.kernel.system.dentries import Dentries
from drgnext.triage.facts import KernelFacts

_MANY = 1_000_000
_SHARE = 0.5


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield the negative dentries, where they are more than a million and half of all. The kernel counts them."""
    counted = Dentries(facts.reader).counted()
    negative, total = counted.get("negative", 0), counted.get("dentries", 0)
    yield Measured(f"{negative:,} of {total:,} dentries are negative")
    if negative >= _MANY and negative >= _SHARE * total:
        yield Finding(
            "negative-dentries",
            WASTE,
            CERTAIN,
            f"{negative:,} of {total:,} names in the dentry cache are of files that do not exist",
            "a program asks for many missing files: dentries says where; `echo 2 >/proc/sys/vm/drop_caches` frees them",
            next=("dentries",),
            weight=negative,
            alternative="the names are asked for again and again, and the cache saves the disk the work",
        )


CHECK = Check("dentries", "a million negative dentries, and half of all", run, seconds=30)
