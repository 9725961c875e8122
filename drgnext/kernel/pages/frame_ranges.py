"""Ranges of page frames: those that have a ``struct page``, and those that are RAM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from drgnext.kernel.pages.lists import zones

if TYPE_CHECKING:
    from drgn import Object, Program


Range = tuple[int, int]  # page frames: the first, and the one after the last

_MOST_RESOURCES = 1 << 16
_DEEPEST_RESOURCE = 16  # a CXL device's RAM is four levels deep: window, region, device, RAM

# The bits of mem_section.section_mem_map (include/linux/mmzone.h). They have not changed since 4.13.
_HAS_MEM_MAP, _IS_ONLINE = 1 << 1, 1 << 2
_MOST_SECTIONS = 1 << 24


def valid_frames(prog: Program) -> list[Range]:
    """Return the page frames that have a ``struct page``, sorted.

    Holes and devices are among them. ``memory_frames`` has RAM only.
    """
    from drgn.helpers.linux.mm import for_each_valid_page_range

    return [(int(start), int(end)) for start, end, _memmap in for_each_valid_page_range(prog)]


def memory_frames(prog: Program) -> list[Range]:
    """Return the page frames of RAM, sorted.

    RAM is what /proc/iomem calls "System RAM". Drivers add RAM below a resource of their device, as "System RAM (kmem)"
    or "System RAM (virtio_mem)". A page that is RAM only in part does not count.
    """
    shift = prog["PAGE_SHIFT"].value_()
    pages = (((start + (1 << shift) - 1) >> shift, (end + 1) >> shift) for start, end in _ram(prog))
    return [(start, end) for start, end in pages if start < end]


def all_frames(prog: Program) -> list[Range]:
    """Return one range of all page frames below the highest one of RAM. It includes the holes."""
    return [(0, prog["max_pfn"].value_())]


def offline_frames(prog: Program) -> list[Range]:
    """Return the page frames of memory blocks that are offline, sorted. Their struct pages mean nothing.

    The kernel itself takes them for pages without a struct page (pfn_to_online_page, mm/memory_hotplug.c). Sections
    have the size of the smallest block. Raises LookupError for a kernel without sections.
    """
    roots, per_root = prog["mem_section"], prog["SECTIONS_PER_ROOT"].value_()
    pages = 1 << (prog["SECTION_SIZE_BITS"].value_() - prog["PAGE_SHIFT"].value_())
    section = prog.type("struct mem_section")
    size, place = section.size or 0, section.member("section_mem_map").bit_offset // 8
    found: list[Range] = []
    online = False
    highest = min(prog["__highest_present_section_nr"].value_() + 1, _MOST_SECTIONS)
    for first in range(0, highest, per_root):
        # Since 4.15 mem_section is a pointer to pointers, before an array of pointers (CONFIG_SPARSEMEM_EXTREME), or an
        # array of arrays.
        root = roots[first // per_root]
        address = root.value_() if root.type_.kind.name == "POINTER" else root.address_
        if not address:
            continue
        data = prog.read(address, size * min(per_root, highest - first))
        for number, at in enumerate(range(place, len(data), size), first):
            flags = int.from_bytes(data[at : at + 8], "little")
            if flags & _HAS_MEM_MAP and not flags & _IS_ONLINE:
                found.append((number * pages, (number + 1) * pages))
            online = online or bool(flags & _IS_ONLINE)
    return found if online else []  # before 4.13 no section has the bit


def _ram(prog: Program) -> Iterator[tuple[int, int]]:
    """Yield (first byte, last byte) of the resources that are RAM, sorted and without overlaps."""
    budget = [_MOST_RESOURCES]
    before = -1
    for start, end in _ram_below(prog["iomem_resource"], budget, _DEEPEST_RESOURCE):
        if start > before:
            yield start, end
            before = end


def _ram_below(parent: Object, budget: list[int], levels: int) -> Iterator[tuple[int, int]]:
    """Yield (first byte, last byte) of the RAM among the children of a resource (kernel/resource.c), and below them.

    Children are sorted, do not overlap, and lie within their parent. A list ends at the first one that breaks this
    rule. ``budget`` has the number of resources that may still be read.
    """
    before, last = -1, parent.end.value_()
    resource = parent.child.read_()
    while resource and budget[0] > 0:
        budget[0] -= 1
        start, end = resource.start.value_(), resource.end.value_()
        if start <= before or end < start or start < parent.start.value_() or end > last:
            return
        name = resource.name.string_() if resource.name else b""
        if name.startswith(b"System RAM"):
            yield start, end
        elif levels:
            yield from _ram_below(resource, budget, levels - 1)
        resource, before = resource.sibling.read_(), end


def without_frames(ones: list[Range], others: list[Range]) -> list[Range]:
    """Return the page frames of the first list that are not in the second. Each is sorted and has no overlaps."""
    found = []
    rest = iter([*others, (1 << 64, 1 << 64)])
    low, high = next(rest)
    for start, end in ones:
        at = start
        while at < end:
            while high <= at:
                low, high = next(rest)
            if low > at:
                found.append((at, min(end, low)))
            at = min(end, high) if low < end else end
    return found


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
