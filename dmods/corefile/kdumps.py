"""The headers of compressed kernel dumps (makedumpfile, and QEMU's kdump-zlib).

makedumpfile 1.7.8: diskdump_mod.h (struct disk_dump_header, struct kdump_sub_header), and IMPLEMENTATION, "KDUMP file
format". The fields are those of 64-bit machines, unless the name says otherwise.
"""

from __future__ import annotations

import struct
from typing import Callable, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.modules import elf

SIGNATURE = b"KDUMP   "
NEWEST_VERSION = 6
# signature, version, struct new_utsname (6 x 65 bytes, from 12), a timeval at 408, then status, block_size,
# sub_hdr_size, bitmap_blocks.
_VERSION_AT = 8
_UTSNAME_AT, _NAME = 12, 65
_UTSNAMES = 5  # sysname, nodename, release, version, machine; domainname may be empty
_MACHINE_AT = _UTSNAME_AT + 4 * _NAME
_STATUS = struct.Struct("<IiiI")
_STATUS_AT = 424
# struct kdump_sub_header, at the second block. The numbers of pages are of 64 bits since version 6.
_SUB_HEADER = struct.Struct("<Qii")  # phys_base, dump_level, split (version 2 and later)
_PLACES = struct.Struct("<QQQQ")  # offset and size of vmcoreinfo (version 3), of the notes (version 4)
_PLACES_AT = 32
_FRAMES = struct.Struct("<QQQ")  # start_pfn_64, end_pfn_64, max_mapnr_64
_FRAMES_AT = 80
_SMALL_FRAMES = struct.Struct("<QQ")  # start_pfn, end_pfn, up to version 5
_SMALL_FRAMES_AT = 16
_BLOCKS = range(4096, 65536 + 1)
_MOST_TEXT = 1 << 16  # bytes of VMCOREINFO
_MOST_NOTES = 64 << 20
_EM_386 = 3
_CLASS32, _LITTLE = 1, 1  # EI_CLASS, EI_DATA
_PRSTATUS_SIZES = {336: "x86_64", 392: "aarch64"}  # sizeof(struct elf_prstatus)
_NT_PRSTATUS = 1
#: What to do with the dump of another machine.
KNOWN_MACHINES = "dmods knows dumps of x86-64 and AArch64 kernels; crash(8) built for that machine reads this one"
#: utsname.machine of 32-bit machines (UTS_MACHINE), and e_machine.
_SMALL_MACHINES = frozenset({"i386", "i486", "i586", "i686", "armv6l", "armv7l", "arm", "ppc", "mips", "s390"})
_SMALL_ELF = {_EM_386: "i386", 40: "arm", 8: "mips", 20: "ppc", 22: "s390", 243: "riscv32"}

Read = Callable[[int, int], bytes]


class Part(NamedTuple):
    """A part of a dump that makedumpfile --split wrote: its page frames, of how many (0: not known)."""

    first: int
    end: int
    frames: int


class Header(NamedTuple):
    """The headers of a dump. ``machine`` is uname's, "" where the dump does not say it. ``level`` is the dump level.

    ``named``: all strings of uname are there. QEMU writes that of the machine alone, and then libkdumpfile uses none.
    ``vmcoreinfo`` and ``notes`` are (offset, size) in the dump, (0, 0) where it has none.
    """

    version: int
    machine: str
    named: bool
    status: int
    block: int
    sub_blocks: int
    bitmap_blocks: int
    level: int
    part: Optional[Part]
    vmcoreinfo: tuple[int, int]
    notes: tuple[int, int]


def read_header(read: Read) -> Optional[Header]:
    """Return the headers, or None if the bytes are no compressed dump, or one of a 32-bit machine."""
    head = read(0, _STATUS_AT + _STATUS.size)
    if not head.startswith(SIGNATURE) or len(head) < _STATUS_AT + _STATUS.size:
        return None
    (version,) = struct.unpack_from("<i", head, _VERSION_AT)
    status, block, sub_blocks, bitmap_blocks = _STATUS.unpack_from(head, _STATUS_AT)
    if block not in _BLOCKS or block & (block - 1) or sub_blocks < 0:
        return None
    sub = read(block, _FRAMES_AT + _FRAMES.size).ljust(_FRAMES_AT + _FRAMES.size, b"\0")
    _phys_base, level, split = _SUB_HEADER.unpack_from(sub, 0)
    vmcoreinfo, vmcoreinfo_size, notes, notes_size = _PLACES.unpack_from(sub, _PLACES_AT)
    machine = head[_MACHINE_AT : _MACHINE_AT + _NAME].partition(b"\0")[0].decode("ascii", "replace")
    named = all(head[_UTSNAME_AT + number * _NAME] for number in range(_UTSNAMES))
    return Header(
        *(version, machine, named, status, block, sub_blocks, bitmap_blocks, level if version >= 1 else 0),
        _part(sub, version) if split and version >= 2 else None,
        (vmcoreinfo, vmcoreinfo_size) if version >= 3 else (0, 0),
        (notes, notes_size) if version >= 4 else (0, 0),
    )


def _part(sub: bytes, version: int) -> Part:
    if version >= NEWEST_VERSION:
        return Part(*_FRAMES.unpack_from(sub, _FRAMES_AT))
    first, end = _SMALL_FRAMES.unpack_from(sub, _SMALL_FRAMES_AT)
    return Part(first, end, 0)


def notes_of(read: Read, header: Header) -> bytes:
    """Return the notes of the dump (registers), at most 64 MB."""
    offset, size = header.notes
    return read(offset, min(size, _MOST_NOTES)) if size else b""


def machine_of(read: Read, header: Header) -> Optional[str]:
    """Return the machine as uname names it, or None if nothing says it.

    Where the string of uname is empty, VMCOREINFO says it by what only one machine has (arch/*/kernel/*crash_core.c),
    and if not, the size of the registers in the notes.
    """
    if header.machine:
        return header.machine
    offset, size = header.vmcoreinfo
    text = b"\n" + (read(offset, min(size, _MOST_TEXT)) if size else b"")
    if b"\nNUMBER(phys_base)=" in text:
        return "x86_64"
    if b"\nNUMBER(kimage_voffset)=" in text:
        return "aarch64"
    for name, kind, data in elf.read_notes(notes_of(read, header), True):
        if name == b"CORE" and kind == _NT_PRSTATUS:
            return _PRSTATUS_SIZES.get(len(data))
    return None


def small_machine(read: Read) -> Optional[str]:
    """Return the name of the machine if the bytes are the dump of a 32-bit one, else None.

    In a compressed dump, struct timeval has half the size there, so that all that follows lies elsewhere.
    """
    head = read(0, _MACHINE_AT + _NAME)
    if head.startswith(SIGNATURE):
        machine = head[_MACHINE_AT:].partition(b"\0")[0].decode("ascii", "replace")
        return machine if machine in _SMALL_MACHINES else None
    if not head.startswith(b"\x7fELF") or len(head) < 20:
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == _LITTLE else "big")
    name = _SMALL_ELF.get(number)
    # kexec writes the dumps of a 32-bit x86 with headers of 64 bits, too.
    return name if head[4] == _CLASS32 or number == _EM_386 else None
