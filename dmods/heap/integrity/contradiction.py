"""One contradiction in the records of an allocator."""

from __future__ import annotations

from typing import Optional

from dmods.base.dataclass import dataclass


@dataclass(frozen=True)
class Contradiction:
    """A contradiction. ``arena`` is a number; None for a structure that belongs to no arena. ``where`` names the
    structure or list."""

    arena: Optional[int]
    where: str
    address: Optional[int]
    text: str
