"""The modules of a process, found by address."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Optional

from dmods.base.cached import cached
from dmods.target import Module, Target


class ModulesByAddress:
    """The mappings of modules, sorted. There may be thousands, and they are asked for each frame of each thread."""

    def __init__(self, modules: Iterable[Module]) -> None:
        ranges = ((piece.start, piece.end, module) for module in modules for piece in module.ranges)
        self._ranges = sorted(ranges, key=lambda entry: entry[:2])
        self._starts = [start for start, _end, _module in self._ranges]

    def at(self, address: int) -> Optional[Module]:
        """Return the module with a mapping that holds `address`, or None."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ranges[index][1]:
            return None
        return self._ranges[index][2]


@cached
def modules_by_address(target: Target) -> ModulesByAddress:
    """Return the modules of the process by address. They are sorted once for each state of it."""
    return ModulesByAddress(target.modules())
