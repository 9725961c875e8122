"""The mappings of a process, found by address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from dmods.base.cached import cached
from dmods.base.ranges import Ranges
from dmods.base.rows import at_or_before
from dmods.target import AddressRange, Target, address_ranges


def mapping_at(target: Target, address: int) -> Optional[AddressRange]:
    """Return the mapping that holds `address`, or None.

    This is a binary search: a process may have a million mappings.
    """
    mappings = target.mappings()
    index = at_or_before(mappings, address)
    if index < 0:
        return None
    mapping = mappings[index]
    return mapping if address in mapping else None


@cached
def anonymous_memory(target: Target) -> Ranges:
    """Return anonymous memory of any access. Mappings that touch are one range: mlock(2), madvise(2) and mprotect(2)
    split what was mapped as one."""
    return Ranges((mapping.start, mapping.end) for mapping in target.mappings() if mapping.path is None)


def subtract(mappings: Sequence[AddressRange], ranges: Iterable[tuple[int, int]]) -> Sequence[AddressRange]:
    """Return the parts of the mappings that are outside the ranges."""
    left_out = Ranges(ranges)
    if not left_out:
        return mappings
    found = address_ranges()
    for mapping in mappings:
        if not left_out.within(mapping.start, mapping.end):
            found.append(mapping)
            continue
        for start, end in left_out.without([(mapping.start, mapping.end)]):
            found.append(mapping.part(start, end))
    return found


# Shared anonymous memory, SysV segments, memfds, POSIX shared memory.
_ONLY_NAMED = ("/dev/zero", "/SYSV", "/memfd:", "/dev/shm/")


def is_named_memory(path: Optional[str]) -> bool:
    """Return whether a mapping of that path is of memory that only has the name of a file."""
    return (path or "").startswith(_ONLY_NAMED)
