"""Blocks and their bytes, to be added up."""

from __future__ import annotations

from dmods.base.dataclass import dataclass


@dataclass(frozen=True)
class Amount:
    """A number of blocks, and their usable bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.count + other.count, self.bytes + other.bytes)


NOTHING = Amount()
