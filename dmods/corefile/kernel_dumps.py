"""The dumps of kernels, told from the cores of processes, and VMCOREINFO where it is not among the notes."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import BinaryIO, Optional

from dmods.base.regex import regex
from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf

#: Names of notes that only the dump of a machine has: QEMU writes one for each CPU of x86 (target/i386/arch_dump.c).
MACHINE_NOTES = (b"VMCOREINFO", b"QEMU")
#: NT_PRPSINFO, NT_AUXV, NT_FILE, NT_SIGINFO: what a kernel writes of a process.
PROCESS_NOTES = frozenset({3, 6, 0x46494C45, 0x53494749})
# The note in the kernel's memory: struct elf_note, its name, and the text (update_vmcoreinfo_note). The name has 11
# bytes and the length of the text comes before it.
_NAME = b"VMCOREINFO\0\0"
_HEADER = struct.Struct("<III")
_BEGIN = b"OSRELEASE="
_LEAST, _MOST = 64, 1 << 16  # bytes of text; a page, but for kernels with more
_STEP = 8 << 20
_SYMBOL = regex(rb"^SYMBOL\(init_uts_ns\)=([0-9a-f]{1,16})$", re.M)
_RELEASE = regex(rb"^OSRELEASE=(\S{1,64})$", re.M)
# What turns an address of the kernel's image into a physical one: arch/x86/kernel/machine_kexec_64.c and
# arch/arm64/kernel/crash_core.c.
_PHYS_BASE = regex(rb"^NUMBER\(phys_base\)=(-?\d{1,20})$", re.M)
_VOFFSET = regex(rb"^NUMBER\(kimage_voffset\)=0x([0-9a-f]{1,16})$", re.M)
_START_KERNEL_MAP = 0xFFFFFFFF80000000  # arch/x86/include/asm/page_64_types.h
_UTS_SIZE = 1024  # struct uts_namespace begins with a counter in some releases, and then has six texts of 65 bytes
_WORD = (1 << 64) - 1
_MOST_FOUND = 64
_MOST_TEXTS = 4096  # a dump may be full of false ones
_MOST_NOTES = 64 << 20


def has_physical_addresses(segments: Iterable[elf.Segment]) -> bool:
    """Return whether segments have physical addresses. The core of a process has none (p_paddr is 0).

    QEMU writes them as virtual ones, too, and no permissions (write_elf64_load). A tool may do so for a process, with
    permissions. One segment may begin at the physical address 0. If more lack an address, those that are there are
    damage.
    """
    loads = [each for each in segments if each.type == elf.PT_LOAD]
    if sum(not each.paddr for each in loads) > 1:
        return False
    if any(each.paddr not in (0, each.vaddr) for each in loads):
        return True
    return any(each.paddr for each in loads) and not any(each.flags for each in loads)


def is_machines(segments: Iterable[elf.Segment], kinds: Collection[int]) -> bool:
    """Return whether it is the dump of a machine, by its segments. ``kinds`` are those of its notes.

    So are dumps of QEMU for arm64, whose notes look like those of a process, and a dump that ends before its notes.
    """
    return not PROCESS_NOTES.intersection(kinds) and has_physical_addresses(segments)


def lacks_vmcoreinfo(path: str) -> bool:
    """Return whether the file is the dump of a machine in ELF that has no VMCOREINFO among its notes."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)

            def read(offset: int, count: int) -> bytes:
                return os.pread(file.fileno(), count, offset) if 0 <= offset < size and count > 0 else b""

            header = elf.parse(read, path)
            if header.type != elf.ET_CORE:
                return False
            kinds, names = set(), set()
            for segment in [each for each in header.segments if each.type == elf.PT_NOTE][:_MOST_FOUND]:
                for name, kind, _data in elf.read_notes(
                    read(segment.offset, min(segment.filesz, _MOST_NOTES)), header.little_endian
                ):
                    names.add(name)
                    kinds.add(kind if name == b"CORE" else 0)
    except (OSError, OverflowError, CorruptError, TruncatedError):
        return False
    return b"VMCOREINFO" not in names and (b"QEMU" in names or is_machines(header.segments, kinds))


def find_vmcoreinfo(path: str) -> Optional[bytes]:
    """Return the text of VMCOREINFO in the memory that an ELF dump has, or None.

    The kernel keeps the whole note from its start on. A copy counts if the kernel's release stands where the text says.
    Where the text does not say it, there must be one text only.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)

            def read(offset: int, count: int) -> bytes:
                if not 0 <= offset < size or count <= 0:
                    return b""
                return os.pread(file.fileno(), min(count, size - offset), offset)  # os.lseek moves the file, too

            loads = list(elf.parse(read, path).loads())
            others: set[bytes] = set()
            for text in islice(_texts(file, size, read), _MOST_TEXTS):
                proof = _proven(text, loads, read)
                if proof:
                    return text
                if proof is None and len(others) < _MOST_FOUND:
                    others.add(text)
    except (OSError, CorruptError, TruncatedError):
        return None
    return others.pop() if len(others) == 1 else None


def _texts(file: BinaryIO, size: int, read: elf.Read) -> Iterator[bytes]:
    """Yield the text of each such note in the file."""
    for start in _data(file, size):
        block = read(start, _STEP + len(_NAME) - 1)  # a name may begin in this block and end in the next
        at = block.find(_NAME)
        while 0 <= at < _STEP:
            text = _text(start + at, read)
            if text is not None:
                yield text
            at = block.find(_NAME, at + 1)


def _data(file: BinaryIO, size: int) -> Iterator[int]:
    """Yield the offsets of blocks of the file that hold data. Holes are zeros."""
    at = 0
    while at < size:
        try:
            at = max(at, os.lseek(file.fileno(), at, os.SEEK_DATA) // _STEP * _STEP)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
        yield at
        at += _STEP


def _text(name: int, read: elf.Read) -> Optional[bytes]:
    """Return the text of the note whose name is at that offset of the file, or None if it is no such note."""
    header = read(name - _HEADER.size, _HEADER.size)
    if len(header) < _HEADER.size:
        return None
    name_size, length, kind = _HEADER.unpack(header)
    if name_size != len(_NAME) - 1 or kind or not _LEAST <= length <= _MOST:
        return None
    text = read(name + len(_NAME), length)
    return text if len(text) == length and text.startswith(_BEGIN) else None


def _proven(text: bytes, loads: Iterable[elf.Segment], read: elf.Read) -> Optional[bool]:
    """Return whether the release is in the kernel's memory where the text says. None: the text does not say where."""
    symbol, release = _SYMBOL.search(text), _RELEASE.search(text)
    base, voffset = _PHYS_BASE.search(text), _VOFFSET.search(text)
    if symbol is None or release is None or (base is None and voffset is None):
        return None
    address = int(symbol[1], 16)
    if base is not None:
        physical = (address - _START_KERNEL_MAP + int(base[1])) & _WORD
    else:
        physical = (address - (int(voffset[1], 16) if voffset is not None else 0)) & _WORD
    for load in loads:
        if load.paddr <= physical < load.paddr + load.filesz:
            return release[1] + b"\0" in read(load.offset + physical - load.paddr, _UTS_SIZE)
    return False
