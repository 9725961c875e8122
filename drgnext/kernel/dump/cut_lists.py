"""Lists and trees of the kernel that lead into memory that the dump lacks: they are missing, and not damaged."""

from __future__ import annotations

from collections.abc import Iterator

from drgnext.kernel.dump.cached_memory import Memory

_MOST = 1 << 20  # lists that are counted


def linked_backwards(memory: Memory, head: int, seen: set[int], most: int) -> Iterator[int]:
    """Return the last nodes of a list_head list, in its order, for a list whose links forwards cannot all be read.

    ``seen`` are the nodes that were met forwards. The second word of a node is its link back.
    """
    found: list[int] = []
    at = memory.word(head + 8)
    while at is not None and at not in seen and len(seen) <= most:
        seen.add(at)
        found.append(at)
        at = memory.word(at + 8)
    return reversed(found)


class CutLists:
    """Counts them by what they list, so that hundreds make one note. A list that is met again counts once."""

    def __init__(self) -> None:
        self._found: dict[str, set[int]] = {}

    def add(self, what: str, start: int) -> None:
        """Count ``what`` ("the list of threads") that starts at an address."""
        starts = self._found.setdefault(what, set())
        if len(starts) < _MOST:
            starts.add(start)

    @property
    def notes(self) -> list[str]:
        """Return a line for each kind."""
        return [_note(what, len(starts), min(starts)) for what, starts in sorted(self._found.items())]


def _note(what: str, count: int, lowest: int) -> str:
    if count == 1:
        return f"{what} at {lowest:#x} leads into memory that the dump lacks: the rest of it is missing"
    noun, _space, of = what.removeprefix("the ").partition(" ")
    return (
        f"{count} {noun}s {of} lead into memory that the dump lacks (one of them is at {lowest:#x}): the rest of each "
        "is missing"
    )
