"""The dump as the engine reads it: natively where it can, else through drgn in large blocks."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional

from dmods._engine import Image, Physical
from dmods.elf import PT_LOAD, read_segments
from dmods.errors import UserError

if TYPE_CHECKING:
    from dmods._engine import PageTables

# arch/x86/include/asm/page_64_types.h: where the kernel's image is mapped to, before KASLR moves it.
_START_KERNEL_MAP = 0xFFFFFFFF80000000

_PN_XNUM = 0xFFFF
_WORD = (1 << 64) - 1


def page_tables(prog: Any, vmcoreinfo: Mapping[str, int]) -> PageTables:
    """The kernel's own page tables. Raises UserError for a machine whose tables the engine does not know."""
    from drgn import Architecture

    pgd, page_bits = prog["init_mm"].pgd.value_(), prog["PAGE_SHIFT"].value_()
    arch = prog.platform.arch
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
            # What fits no machine is for the engine to refuse.
            "va_bits": (64 - size if size else vmcoreinfo["VA_BITS"]) & 0xFF,
            "clear": 0,
        }
    raise UserError(f"the page tables of {arch.name} are not known to dmods", "known are x86-64 and AArch64")


def native(path: Optional[str]) -> tuple[Optional[Physical], str]:
    """(the dump, "") or (None, why the engine cannot read it)."""
    if path is None:
        return None, "drgn does not say where the dump is"
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
    with open(path, "rb") as file:

        def read(offset: int, size: int) -> bytes:
            return os.pread(file.fileno(), size, offset) if 0 <= offset < 1 << 63 else b""

        head = read(0, 64)
        if len(head) < 64 or head[4:6] != b"\x02\x01":
            raise ValueError("it is not a little-endian ELF of 64 bits")
        table, sections = struct.unpack_from("<QQ", head, 32)
        entry, count = struct.unpack_from("<HH", head, 54)
        if count == _PN_XNUM:
            count = int.from_bytes(read(sections + 44, 4), "little")  # sh_info of section 0
        segments = [s for s in read_segments(read, table, count, 8, entry_size=entry) if s.type == PT_LOAD]
    return Physical.elf(Image([path], [(s.paddr, s.filesz, 0, s.offset) for s in segments], []))


def through(prog: Any) -> Physical:
    """The dump as drgn reads it."""
    return Physical.through(_reader(prog))


def _reader(prog: Any) -> Callable[[int, int], bytes]:
    from drgn import FaultError

    def read(address: int, size: int) -> bytes:
        try:
            return bytes(prog.read(address, size, True))
        except FaultError as error:
            # What lies before the first byte that is missing.
            there = error.address - address
            return read(address, there) if 0 < there < size else b""
        except ValueError:  # an address beyond drgn's largest
            return b""

    return read
