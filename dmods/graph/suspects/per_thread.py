"""Find the variables that many threads have, each its own: a thread-local cache, a local of a worker's function.

What one thread holds may be little. All of them together are what somebody has to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.graph.owners.heap_owners import ALONE, Line, Owners

_MOSTLY = 0.7  # of what all threads hold: one that holds as much is named alone


class ThreadLines(NamedTuple):
    """The lines of one variable in several threads, most bytes first."""

    name: str
    lines: list[Line]

    @property
    def bytes(self) -> int:
        """Return the usable bytes that they hold."""
        return sum(line.bytes for line in self.lines)

    @property
    def threads(self) -> int:
        """Return how many threads there are. One thread may have the variable in several frames."""
        return len({line.roots[0].tid for line in self.lines})

    @property
    def blocks(self) -> int:
        """Return how many blocks they hold."""
        return sum(line.count or 0 for line in self.lines)


def of_threads(owners: Owners, lines: Sequence[Line], limit: int) -> list[ThreadLines]:
    """Return the variables of threads that hold at least ``limit`` bytes in all, and of which no thread has most."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        name = _name(owners, line)
        if name is not None:
            found.setdefault(name, []).append(line)
    return [
        each
        for each in (ThreadLines(name, same) for name, same in found.items())
        if each.threads > 1 and each.bytes >= limit and each.lines[0].bytes < _MOSTLY * each.bytes
    ]


def _name(owners: Owners, line: Line) -> Optional[str]:
    """Return the name of the only root without its thread, or None where the root is no variable of a thread."""
    if line.how != ALONE or line.set is None or len(line.roots) != 1:
        return None
    root = line.roots[0]
    if root.tid is None or root.variable is None or root.kind not in ("thread-local", "frame"):
        return None
    return owners.names.in_all_threads(root)
