"""Memory of a cut kdump for drgn, read by dmods.

libkdumpfile maps the file. In a dump that is cut it may reach for a page behind the file's end, and then the kernel
ends drgn (SIGBUS). dmods reads the file with pread(2).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Optional

from dmods._engine import Physical
from dmods.errors import UserError
from drgnext.kernel.dump.image import native, page_tables
from drgnext.kernel.dump.vmcoreinfo import numbers

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import PageTables

_ENTRY = struct.Struct("<Q")
_MOST_PAGES = 1 << 16  # translations that are remembered
_WHOLE = (1 << 64) - 1
# Bits of an entry. x86-64: present, large page (Intel SDM volume 3, 4.5). AArch64: valid, and table or page: without
# the second, the entry maps a block (Arm ARM, D8.3). The bits from 52 (48) on are no part of an address.
_PRESENT = 1
_LARGE = 1 << 7
_TABLE = 1 << 1
_ADDRESS = {"x86_64": (1 << 52) - 1, "aarch64": (1 << 48) - 1}


def read_natively(prog: Program, path: str) -> None:
    """Have drgn read the machine's memory by dmods' own reader, where that can read the dump."""
    import drgn

    physical, _reason = native(path)
    if physical is None:
        return
    memory = physical

    def read_physical(address: int, count: int, _offset: int, _physical: bool) -> bytes:
        data = memory.read(address, count)
        if len(data) < count:
            raise drgn.FaultError("the dump lacks it", address + len(data))
        return data

    prog.add_memory_segment(0, _WHOLE, read_physical, True)
    try:
        space = _Space(memory, page_tables(prog, numbers(prog)))
    except (UserError, LookupError, drgn.FaultError):
        return  # the kernel's page tables are not in the dump: nor is anything that they lead to

    def read_virtual(address: int, count: int, _offset: int, _physical: bool) -> bytes:
        data = space.read(address, count)
        if len(data) < count:
            raise drgn.FaultError("the dump lacks it, or it is not mapped", address + len(data))
        return data

    prog.add_memory_segment(0, _WHOLE, read_virtual, False)


class _Space:
    """The kernel's address space: its page tables, over the memory in a dump."""

    def __init__(self, physical: Physical, tables: PageTables) -> None:
        self._physical = physical
        self._tables = tables
        self._bits = tables["page_bits"]
        self._index_bits = self._bits - 3
        self._levels = -(-(tables["va_bits"] - self._bits) // self._index_bits)
        self._mask = _ADDRESS[tables["arch"]] & ~((1 << self._bits) - 1) & ~tables["clear"]
        self._pages: dict[int, Optional[int]] = {}

    def read(self, address: int, count: int) -> bytes:
        """Return up to ``count`` bytes, up to the first one that is not mapped or not in the dump."""
        out, size = bytearray(), 1 << self._bits
        while len(out) < count:
            offset = (address + len(out)) % size
            page = self._page((address + len(out)) >> self._bits)
            wanted = min(size - offset, count - len(out))
            piece = self._physical.read(page + offset, wanted) if page is not None else b""
            out += piece
            if len(piece) < wanted:
                break
        return bytes(out)

    def _page(self, number: int) -> Optional[int]:
        """Return the physical address of a page of the address space, or None where nothing is mapped."""
        if number not in self._pages:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            self._pages[number] = self._walk(number)
        return self._pages[number]

    def _walk(self, number: int) -> Optional[int]:
        table: int = self._tables["root"]
        x86 = self._tables["arch"] == "x86_64"
        for level in reversed(range(self._levels)):
            index = number >> (level * self._index_bits) & ((1 << self._index_bits) - 1)
            found = self._physical.read(table + 8 * index, 8)
            if len(found) < 8:
                return None
            entry: int = _ENTRY.unpack(found)[0]
            if not entry & _PRESENT:
                return None
            table = entry & self._mask
            if level and (entry & _LARGE if x86 else not entry & _TABLE):
                inside = (1 << level * self._index_bits) - 1
                return (table & ~(inside << self._bits)) | ((number & inside) << self._bits)
        return table
