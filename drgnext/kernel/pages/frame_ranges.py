"""Ranges of page frames: those that have a ``struct page``, and those that are RAM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.pages.lists import zones

if TYPE_CHECKING:
    from drgn import Program


Range = tuple[int, int]  # page frames: the first, and the one after the last

_MOST_RESOURCES = 1 << 16


def valid_frames(prog: Program) -> list[Range]:
    """Return the page frames that have a ``struct page``, sorted.

    Holes and devices are among them. ``memory_frames`` has RAM only.
    """
    from drgn.helpers.linux.mm import for_each_valid_page_range

    return [(int(start), int(end)) for start, end, _memmap in for_each_valid_page_range(prog)]


def memory_frames(prog: Program) -> list[Range]:
    """Return the page frames of RAM, sorted.

    RAM is what /proc/iomem calls "System RAM", hotplugged "System RAM (kmem)" included. A page that is RAM only in part
    does not count.
    """
    shift = prog["PAGE_SHIFT"].value_()
    pages = (
        ((start + (1 << shift) - 1) >> shift, (end + 1) >> shift)
        for start, end, name in _resources(prog)
        if name.startswith(b"System RAM")
    )
    return [(start, end) for start, end in pages if start < end]


def all_frames(prog: Program) -> list[Range]:
    """Return one range of all page frames below the highest one of RAM. It includes the holes."""
    return [(0, prog["max_pfn"].value_())]


def _resources(prog: Program) -> Iterator[tuple[int, int, bytes]]:
    """Yield the topmost resources (kernel/resource.c) as (first byte, last byte, name).

    They are sorted and do not overlap. The list ends at the first resource that breaks this rule.
    """
    resource, before = prog["iomem_resource"].child.read_(), -1
    for _ in range(_MOST_RESOURCES):
        if not resource:
            return
        start, end = resource.start.value_(), resource.end.value_()
        if start <= before or end < start:
            return
        yield start, end, resource.name.string_() if resource.name else b""
        resource, before = resource.sibling.read_(), end


def common_frames(ones: list[Range], others: list[Range]) -> list[Range]:
    """Return the page frames that are in both lists. Each list is sorted and has no overlaps."""
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


def count_pages(ranges: list[Range]) -> int:
    """Return the number of pages in the ranges."""
    return sum(end - start for start, end in ranges)


def present_pages(prog: Program) -> Optional[int]:
    """Return the sum of ``present_pages`` over all zones, or None if it cannot be read.

    The kernel itself gives this sum as its number of pages.
    """
    from drgn import FaultError

    try:
        return sum(int(zone.present_pages.value_()) for zone in zones(prog))
    except (FaultError, LookupError):
        return None
