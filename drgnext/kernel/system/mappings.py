"""The mappings of a process in a kernel's dump: their names, and how much of each is in memory.

The sizes in memory are counted in the process's own page tables (arch/x86/include/asm/pgtable_types.h,
arch/arm64/include/asm/pgtable-hwdef.h). They are those of Rss in /proc/PID/smaps, but for pages of zeros.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING

from dmods.base.named_tuple import NamedTuple
from drgnext.kernel.dump.image import page_tables
from drgnext.kernel.dump.vmcoreinfo import numbers

if TYPE_CHECKING:
    from drgn import Object

    from drgnext.kernel.system.reading import Reader

_MOST_MAPPINGS = 1 << 17
_MOST_TABLES = 1 << 17  # that are read: 256 GB in pages of 4 KiB
_PRESENT = 1
_X86_NONE = 1 << 8  # _PAGE_PROTNONE: in memory, and not accessible
_X86_LARGE = 1 << 7  # _PAGE_PSE
_ADDRESS = {"x86_64": (1 << 52) - 1, "aarch64": (1 << 48) - 1}
_SHARED = 1 << 3  # VM_SHARED


class Mapping(NamedTuple):
    """A mapping. ``name`` is as in /proc/PID/maps, "" for anonymous memory. ``resident`` bytes are in memory."""

    address: int  # of its struct vm_area_struct
    start: int
    end: int
    name: str
    file: bool
    shared: bool
    resident: int


class PageTables:
    """Counts the pages of processes. ``full`` says that a count was given up."""

    def __init__(self, reader: Reader) -> None:
        """Raise UserError for a machine whose page tables are not known."""
        found = page_tables(reader.prog, numbers(reader.prog))
        self._reader = reader
        self._arch: str = found["arch"]
        self._page_bits: int = found["page_bits"]
        self._index_bits = self._page_bits - 3
        self._levels = -(-(found["va_bits"] - self._page_bits) // self._index_bits)
        self._mask = _ADDRESS[self._arch] & ~((1 << self._page_bits) - 1) & ~found["clear"]
        self._left = _MOST_TABLES
        self.full = False

    def resident(self, pgd: int, start: int, end: int) -> int:
        """Return how many bytes from ``start`` to ``end`` are in memory. ``pgd`` is the address of the first table."""
        size = 8 << self._index_bits
        return self._below(self._reader.prog.read(pgd, size), self._levels - 1, start, end)

    def _below(self, table: bytes, level: int, start: int, end: int) -> int:
        """Count below a table. The addresses are those from the beginning of what the table maps."""
        shift = self._page_bits + level * self._index_bits
        first, last = start >> shift, min((end - 1) >> shift, (1 << self._index_bits) - 1)
        entries = struct.unpack_from(f"<{last - first + 1}Q", table, 8 * first)
        if level == 0:
            present = _PRESENT | (_X86_NONE if self._arch == "x86_64" else 0)
            return sum(1 for entry in entries if entry & present) << shift
        total = 0
        for index, entry in enumerate(entries, first):
            if not entry & (_PRESENT | (_X86_NONE if self._large(entry) else 0)):
                continue
            low, high = max(start, index << shift), min(end, (index + 1) << shift)
            if self._large(entry):
                total += high - low
            else:
                base = index << shift
                total += self._below(self._table(entry), level - 1, low - base, high - base)
        return total

    def _large(self, entry: int) -> bool:
        """Return whether an entry above the last level maps memory itself."""
        return bool(entry & _X86_LARGE) if self._arch == "x86_64" else entry & 3 == _PRESENT

    def _table(self, entry: int) -> bytes:
        size = 8 << self._index_bits
        self._left -= 1
        if self._left < 0:
            self.full = True
            return bytes(size)
        found = b""
        with self._reader.reading("page tables of processes"):
            found = self._reader.prog.read(entry & self._mask, size, True)
        return found.ljust(size, b"\0")


def largest(reader: Reader, mm: Object, most: int) -> list[Mapping]:
    """Return the mappings of a ``struct mm_struct *`` that have most memory. Raises UserError, drgn.FaultError."""
    from drgn.helpers.linux.mm import for_each_vma

    tables = PageTables(reader)
    pgd = mm.pgd.value_()
    found = []
    for vma in islice(for_each_vma(mm), _MOST_MAPPINGS):
        with reader.reading("mappings of processes"):
            start, end = int(vma.vm_start), int(vma.vm_end)
            if 0 <= start < end:
                found.append((tables.resident(pgd, start, end), start, end, vma))
    if tables.full:
        reader.note("a process has too many page tables: what its mappings have in memory is too low")
    found.sort(key=lambda each: (-each[0], each[1]))
    return [_described(reader, *each) for each in found[:most] if each[0]]


def _described(reader: Reader, resident: int, start: int, end: int, vma: Object) -> Mapping:
    from drgn.helpers.linux.mm import vma_name

    name = ""
    with reader.reading("names of mappings"):
        name = vma_name(vma).decode(errors="backslashreplace")
    shared = bool(int(vma.vm_flags) & _SHARED)
    return Mapping(vma.value_(), start, end, name, bool(vma.vm_file.value_()), shared, resident)
