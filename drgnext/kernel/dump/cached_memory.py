"""A cache of kernel memory, page by page. A stack or an unwind table takes many small reads of few pages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Optional, Protocol

_PAGE = 4096  # the page of this cache; the machine's page may be larger
_MOST_PAGES = 8192  # at most 32 MiB
_WORD = {True: struct.Struct("<Q"), False: struct.Struct(">Q")}


class Memory(Protocol):
    """The memory that trap frames and unwinders read. No method raises: missing memory gives None, or fewer bytes."""

    def word(self, address: int) -> Optional[int]:
        """Return the unsigned 64-bit word at the address, or None."""

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes. They end at the first byte that is not in the dump."""


class Pages:
    """A Memory that caches the pages that ``read(address, size)`` returns.

    ``read`` raises OSError, or the type ``faults``, where memory is missing.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], faults: type[Exception] = OSError, little_endian: bool = True
    ) -> None:
        self._read = read
        self._faults = (faults, OSError, ValueError, OverflowError)
        self._pages: dict[int, bytes] = {}
        self._unpack = _WORD[little_endian].unpack_from

    def word(self, address: int) -> Optional[int]:
        """Return the unsigned 64-bit word at the address, or None."""
        page = self._pages.get(address >> 12)
        if page is None:
            page = self._page(address >> 12)
        offset = address & (_PAGE - 1)
        if offset + 8 <= len(page):
            return int(self._unpack(page, offset)[0])
        data = self.read(address, 8)
        return int(self._unpack(data)[0]) if len(data) == 8 else None

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes. They end at the first byte that is not in the dump."""
        out = bytearray()
        while len(out) < size:
            offset = (address + len(out)) & (_PAGE - 1)
            number = (address + len(out)) >> 12
            page = self._pages.get(number)
            if page is None:
                page = self._page(number)
            piece = page[offset : offset + size - len(out)]
            if not piece:
                break
            out += piece
        return bytes(out)

    def _page(self, number: int) -> bytes:
        """Return a page of this cache, b"" if it is missing. Empties the cache when it is full."""
        try:
            page = self._read(number << 12, _PAGE)
        except self._faults:
            page = b""
        if len(self._pages) >= _MOST_PAGES:
            self._pages.clear()
        self._pages[number] = page
        return page
