"""Which page frames there are: those with a ``struct page``, and those of them that are memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from drgnext.kernel.lists import zones

Range = tuple[int, int]  # page frames: first, past the last

_MOST_RESOURCES = 1 << 16


def valid(prog: Any) -> list[Range]:
    """The page frames that have a ``struct page``, sorted. Holes and devices too: see ``memory``."""
    from drgn.helpers.linux.mm import for_each_valid_page_range

    return [(int(start), int(end)) for start, end, _memmap in for_each_valid_page_range(prog)]


def memory(prog: Any) -> list[Range]:
    """The page frames of RAM, as /proc/iomem names them ("System RAM", hotplugged "System RAM (kmem)" too): whole
    pages, sorted."""
    shift = prog["PAGE_SHIFT"].value_()
    pages = (
        ((start + (1 << shift) - 1) >> shift, (end + 1) >> shift)
        for start, end, name in _resources(prog)
        if name.startswith(b"System RAM")
    )
    return [(start, end) for start, end in pages if start < end]


def highest(prog: Any) -> list[Range]:
    """All page frames below the highest of memory, holes too."""
    return [(0, prog["max_pfn"].value_())]


def _resources(prog: Any) -> Iterator[tuple[int, int, bytes]]:
    """The topmost resources (kernel/resource.c): (first byte, last, name). Sorted and apart: where they are not,
    the list ends."""
    resource, before = prog["iomem_resource"].child.read_(), -1
    for _ in range(_MOST_RESOURCES):
        if not resource:
            return
        start, end = resource.start.value_(), resource.end.value_()
        if start <= before or end < start:
            return
        yield start, end, resource.name.string_() if resource.name else b""
        resource, before = resource.sibling.read_(), end


def common(ones: list[Range], others: list[Range]) -> list[Range]:
    """The page frames that are in both; each list sorted and without overlaps."""
    found = []
    a = b = 0
    while a < len(ones) and b < len(others):
        start, end = max(ones[a][0], others[b][0]), min(ones[a][1], others[b][1])
        if start < end:
            found.append((start, end))
        if ones[a][1] < others[b][1]:
            a += 1
        else:
            b += 1
    return found


def pages(ranges: list[Range]) -> int:
    return sum(end - start for start, end in ranges)


def present(prog: Any) -> Optional[int]:
    """How many pages the kernel says it has: what its zones' ``present_pages`` add up to; None if unsaid."""
    from drgn import FaultError

    try:
        return sum(int(zone.present_pages.value_()) for zone in zones(prog))
    except (FaultError, LookupError):
        return None
