"""Which stacks grew only because other stacks shrank: a cache whose blocks come from two call sites is no leak.

The blocks of one call site have one type. Where that type did not grow as the stack did, other stacks lost what this
one won.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.graph.types.block_kinds import Types

_MOST_PART = 0.5  # of the growth of a stack. A type that grew by less than this part was replaced
_MOST_LOOKED_AT = 32  # stacks


class ByType(NamedTuple):
    """The growth of the blocks of one type from each core to the next, in bytes."""

    type: str
    steps: list[int]

    @property
    def growth(self) -> int:
        """Return by how many bytes the type grew."""
        return sum(self.steps)


class TypeGrowth:
    """The growth of all types. ``sums`` has the bytes of each kind in each core."""

    def __init__(self, types: Types, sums: dict[int, list[int]]) -> None:
        self._types = types
        self._totals: dict[str, list[int]] = {}
        for kind, each in sums.items():
            name = self._name(kind)
            before = self._totals.get(name)
            self._totals[name] = each if before is None else [a + b for a, b in zip(before, each)]
        self._left = _MOST_LOOKED_AT

    def _name(self, kind: int) -> str:
        return self._types.name(kind).text if kind < len(self._types) else ""

    def replaced(self, example: Optional[int], steps: Sequence[int]) -> Optional[ByType]:
        """Return the growth of the type of the block at an address of the last core, if it did not grow as its stack.

        ``steps`` is the growth of the stack. None: the type grew, too, or is not known.
        """
        growth = sum(steps)
        if example is None or growth <= 0 or self._left <= 0:
            return None
        self._left -= 1
        last = len(self._types.heaps) - 1
        kind = self._types.kinds.kinds_at(last, self._types.heaps[last].marks.engine, [example])[0]
        totals = self._totals.get(self._name(kind)) if kind is not None else None
        if kind is None or totals is None:
            return None
        found = ByType(self._name(kind), [after - before for before, after in zip(totals, totals[1:])])
        return found if found.growth < _MOST_PART * growth else None
