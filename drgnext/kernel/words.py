"""Kernel memory by pages that are kept: a stack or an unwind table is many small reads of few pages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Optional, Protocol

_PAGE = 4096  # of this cache; the machine's own may be larger
_MOST_PAGES = 8192  # 32 MiB kept at most
_WORD = {True: struct.Struct("<Q"), False: struct.Struct(">Q")}


class Memory(Protocol):
    """What the trap frames and the unwinders read. Nothing raises: what is not in the dump is None, or missing."""

    def word(self, address: int) -> Optional[int]:
        """The unsigned 64-bit word there."""

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes: fewer where the next one is not in the dump."""


class Pages:
    """A Memory of whatever ``read(address, size)`` gives; that raises an OSError, or ``faults``, where nothing is."""

    def __init__(
        self, read: Callable[[int, int], bytes], faults: type[Exception] = OSError, little_endian: bool = True
    ) -> None:
        self._read = read
        self._faults = (faults, OSError, ValueError, OverflowError)
        self._pages: dict[int, bytes] = {}
        self._unpack = _WORD[little_endian].unpack_from

    def word(self, address: int) -> Optional[int]:
        page = self._pages.get(address >> 12)
        if page is None:
            page = self._page(address >> 12)
        offset = address & (_PAGE - 1)
        if offset + 8 <= len(page):
            return int(self._unpack(page, offset)[0])
        data = self.read(address, 8)
        return int(self._unpack(data)[0]) if len(data) == 8 else None

    def read(self, address: int, size: int) -> bytes:
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
        try:
            page = self._read(number << 12, _PAGE)
        except self._faults:
            page = b""
        if len(self._pages) >= _MOST_PAGES:
            self._pages.clear()
        self._pages[number] = page
        return page
