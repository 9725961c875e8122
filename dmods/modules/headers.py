"""The headers of an ELF file in the memory of a dead process, and what its dynamic section says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from dmods.errors import CorruptError, TruncatedError
from dmods.modules.elf import MAGIC, PF_W, PF_X, Elf, Read, page_down, parse
from dmods.modules.linkmap import dynamic_entries
from dmods.target import AddressRange

_MOST_HEADERS = 256  # program headers of a module: linkers write a dozen
_DT_STRTAB, _DT_SONAME = 5, 14
_LONGEST_NAME = 256


def in_memory(address: int, read: Read) -> Optional[Elf]:
    """Return the ELF header and program headers that were mapped at ``address``, or None where they are not in the
    dump."""
    if read(address, 4) != MAGIC:
        return None
    try:
        elf = parse(shifted(read, address), "", most=_MOST_HEADERS)
    except (CorruptError, TruncatedError):
        return None
    return elf if 0 < elf.extent()[1] < 1 << 64 else None


def shifted(read: Read, base: int) -> Read:
    """Return a function that reads at offsets from ``base``."""
    return lambda offset, size: read(base + offset, size)


def first_page(elf: Elf) -> int:
    """Return the address of the page at offset 0, as the file has it."""
    for load in elf.loads():
        if page_down(load.offset) == 0:
            return page_down(load.vaddr)
    return elf.extent()[0]


def is_placed(elf: Elf, bias: int, ranges: Sequence[AddressRange]) -> bool:
    """Return whether the mappings are those of a file that was loaded, and not of one that was only read.

    Code lies in memory that may be executed, and the end of the data in memory that may be written: the beginning may
    be read-only after relocation (PT_GNU_RELRO).
    """
    code = False
    for load in elf.loads():
        if not load.memsz:
            continue
        start, last = bias + load.vaddr, bias + load.vaddr + load.memsz - 1
        if load.flags & PF_X:
            code = True
            if not _lies_in("x", start, ranges):
                return False
        if load.flags & PF_W and not _lies_in("w", last, ranges):
            return False
    return code


def _lies_in(flag: str, address: int, ranges: Sequence[AddressRange]) -> bool:
    return any(address in piece and flag in piece.flags for piece in ranges)


def soname(elf: Elf, bias: int, read: Read) -> Optional[str]:
    """Return DT_SONAME, the name that a library has for the dynamic linker, or None."""
    entries = dynamic_entries(read, elf.segments, bias, elf.word)
    table, offset = entries.get(_DT_STRTAB, 0), entries.get(_DT_SONAME)
    if not table or offset is None:
        return None
    # glibc adds the bias to DT_STRTAB in memory, musl does not, and nobody does in the vDSO.
    for place in (table, table + bias):
        name = read(place + offset, _LONGEST_NAME).split(b"\0")[0]
        if name and name.isascii() and name.decode().isprintable():
            return name.decode()
    return None
