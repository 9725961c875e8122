"""The mappings of a process, found by address."""

from __future__ import annotations

from typing import Optional

from dmods.base.rows import at_or_before
from dmods.target import AddressRange, Target


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


# Shared anonymous memory, SysV segments, memfds, POSIX shared memory.
_ONLY_NAMED = ("/dev/zero", "/SYSV", "/memfd:", "/dev/shm/")


def is_named_memory(path: Optional[str]) -> bool:
    """Return whether a mapping of that path is of memory that only has the name of a file."""
    return (path or "").startswith(_ONLY_NAMED)
