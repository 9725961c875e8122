"""Slab objects that nothing points to any more."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.sizes import human_size
from dmods.finding import CERTAIN, LIKELY, SERIOUS, Check, Evidence, Finding, Measured, Said
from drgnext.triage.facts import KernelFacts

_LARGE = 64 << 20
_SHARE = 0.01  # of the objects in use, with a megabyte
_LEAST = 1 << 20


def run(facts: KernelFacts) -> Iterator[Said]:
    """Yield one finding where enough was lost."""
    leaks = facts.leaks
    lost = leaks.direct_bytes + leaks.indirect_bytes
    slab = facts.pages.kinds["slab"] * facts.page_size
    yield Measured(f"{human_size(lost)} of {human_size(slab)} of slabs leaked")
    if lost < _LEAST or (lost < _LARGE and lost < _SHARE * slab):
        return
    first = leaks.groups[0]
    name = first.cache.name if first.cache is not None else "kmalloc-large"
    yield Finding(
        "kernel-leak",
        SERIOUS,
        CERTAIN if first.tracked else LIKELY,
        f"{human_size(lost)} of slab objects leaked: nothing points to "
        f"{leaks.direct_count + leaks.indirect_count:,} of them, {first.count:,} of {name}",
        "findleaks groups them by stack"
        if first.tracked
        else "boot with slub_debug=U: then findleaks names who allocates",
        [Evidence(first.oldest, f"the first object of {name}")],
        ("findleaks", "findleaks -d --top 3"),
        weight=lost,
        alternative="the only pointers to them are encoded, or in memory that the dump lacks",
    )


CHECK = Check(
    "leaks", "64 MB of slab objects leaked, or 1 MB and 1 % of the slabs", run, needs=("leaks", "pages"), seconds=30
)
