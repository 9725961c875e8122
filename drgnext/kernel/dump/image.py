"""The dump as the engine reads it: by itself where it can, otherwise through drgn in large blocks."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Callable, Optional

from dmods._engine import Image, Physical
from dmods.errors import UserError
from dmods.modules.elf import PT_LOAD, read_segments
from drgnext.kernel.dump.machine import architecture

if TYPE_CHECKING:
    from drgn import Program

    from dmods._engine import PageTables

# The address of the kernel's image before KASLR moves it (arch/x86/include/asm/page_64_types.h).
_START_KERNEL_MAP = 0xFFFFFFFF80000000

_PN_XNUM = 0xFFFF
_WORD = (1 << 64) - 1


def page_tables(prog: Program, vmcoreinfo: Mapping[str, int]) -> PageTables:
    """Return the kernel's own page tables. Raises UserError for a machine whose tables the engine does not know."""
    from drgn import Architecture

    pgd, page_bits = prog["init_mm"].pgd.value_(), prog["PAGE_SHIFT"].value_()
    arch = architecture(prog)
    if arch == Architecture.X86_64:
        phys_base = vmcoreinfo.get("phys_base")
        if phys_base is None:
            phys_base = prog["phys_base"].value_()
        return {
            "arch": "x86_64",
            "root": (pgd - _START_KERNEL_MAP + phys_base) & _WORD,
            "page_bits": page_bits,
            "va_bits": 57 if vmcoreinfo.get("pgtable_l5_enabled") else 48,
            "clear": vmcoreinfo.get("sme_mask", 0) & _WORD,
        }
    if arch == Architecture.AARCH64:
        size = vmcoreinfo.get("TCR_EL1_T1SZ")
        voffset = vmcoreinfo.get("kimage_voffset")
        if voffset is None:
            voffset = prog["kimage_voffset"].value_()
        return {
            "arch": "aarch64",
            "root": (pgd - voffset) & _WORD,
            "page_bits": page_bits,
            # The engine refuses a width that fits no machine.
            "va_bits": (64 - size if size else vmcoreinfo["VA_BITS"]) & 0xFF,
            "clear": 0,
        }
    raise UserError(
        f"dmods does not know the page tables of {arch.name if arch is not None else 'an unknown machine'}",
        "take a dump of x86-64 or AArch64",
    )


def native(path: Optional[str]) -> tuple[Optional[Physical], str]:
    """Return (the dump, ""), or (None, the reason why the engine cannot read it)."""
    if path is None:
        return None, "drgn does not give the path of the dump"
    try:
        with open(path, "rb") as file:
            magic = file.read(8)
        if magic[:4] == b"\x7fELF":
            return _elf(path), ""
        return Physical.kdump(path), ""
    except ValueError as error:
        return None, str(error)
    except OSError as error:
        return None, error.strerror or str(error)


def _elf(path: str) -> Physical:
    """Return the physical memory in an ELF dump. Raises ValueError for a file that is not a 64-bit ELF."""
    with open(path, "rb") as file:

        def read(offset: int, size: int) -> bytes:
            return os.pread(file.fileno(), size, offset) if 0 <= offset < 1 << 63 else b""

        head = read(0, 64)
        if len(head) < 64 or head[4:6] != b"\x02\x01":
            raise ValueError("the dump is not a 64-bit little-endian ELF file")
        table, sections = struct.unpack_from("<QQ", head, 32)
        entry, count = struct.unpack_from("<HH", head, 54)
        if count == _PN_XNUM:
            count = int.from_bytes(read(sections + 44, 4), "little")  # sh_info of section 0
        segments = [s for s in read_segments(read, table, count, 8, entry_size=entry) if s.type == PT_LOAD]
    return Physical.elf(Image([path], [(s.paddr, s.filesz, 0, s.offset) for s in segments], []))


def through(prog: Program) -> Physical:
    """Return the physical memory of the dump, read through drgn."""
    return Physical.through(_reader(prog))


def _reader(prog: Program) -> Callable[[int, int], bytes]:
    """Return a function that reads physical memory and returns fewer bytes where memory is missing."""
    from drgn import FaultError

    def read(address: int, size: int) -> bytes:
        try:
            return bytes(prog.read(address, size, True))
        except FaultError as error:
            # Return the bytes before the first missing one.
            there = error.address - address
            return read(address, there) if 0 < there < size else b""
        except ValueError:  # an address above drgn's maximum
            return b""

    return read
