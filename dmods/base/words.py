"""Words in the memory of a process. What they say is not checked here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from dmods._engine import Image

GRANULE = 16  # MALLOC_ALIGNMENT of every 64-bit port, and of i386 since 2.26


class Words:
    """Reads little-endian words of ``size`` bytes (4 or 8) from an Image."""

    def __init__(self, image: Image, size: int) -> None:
        self.image = image
        self.size = size
        self.mask = (1 << (8 * size)) - 1

    def at(self, address: int) -> Optional[int]:
        """Return the word at the address, or None where the dump does not have it."""
        data = self.image.read(address & self.mask, self.size)
        return int.from_bytes(data, "little") if len(data) == self.size else None

    def many(self, address: int, count: int) -> Optional[Sequence[int]]:
        """Return ``count`` words, or None where the dump does not have all of them."""
        if not 0 <= address <= self.mask:
            return None
        data = self.image.read(address, count * self.size)
        if len(data) != count * self.size:
            return None
        return memoryview(data).cast("Q" if self.size == 8 else "I")

    def int32(self, address: int) -> Optional[int]:
        """Return the signed 32-bit integer at the address, or None where the dump does not have it."""
        data = self.image.read(address & self.mask, 4)
        return int.from_bytes(data, "little", signed=True) if len(data) == 4 else None
