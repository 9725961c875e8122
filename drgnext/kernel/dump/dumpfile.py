"""The file of a kernel dump: whether it is complete, and which pages were left out on purpose.

Only headers are read here. drgn reads the memory. Where the file ends early, drgn fails at some address and does not
say why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dmods.base.named_tuple import NamedTuple
from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf

# struct disk_dump_header of a 64-bit machine (makedumpfile's diskdump_mod.h; IMPLEMENTATION, "KDUMP file format"):
# signature, version, struct new_utsname (6 x 65 bytes, from 12), a timeval at 408, then status, block_size,
# sub_hdr_size, bitmap_blocks.
SIGNATURE = b"KDUMP   "
_STATUS = struct.Struct("<IiiI")
_STATUS_AT = 424
_INCOMPLETE = 8  # DUMP_DH_COMPRESSED_INCOMPLETE: makedumpfile ran out of room
# struct kdump_sub_header, at the second block: phys_base, dump_level, split.
_SUB_HEADER = struct.Struct("<Qii")
# struct page_desc: offset, size, flags, page_flags.
_DESCRIPTOR = struct.Struct("<QIIQ")
_MAX_BITMAP = 1 << 30  # bytes: 32 TB of memory
_STEP = 1 << 20
_LAST = 4096  # page descriptors to check; zero pages share the first page of the data

# makedumpfile(8), -d: the bits of the dump level. Leaving out pages of zeros (1) loses nothing: drgn knows them.
TRUNCATED = "the dump is truncated: pages are missing, and from the answers too"
_LEFT_OUT = ((2, "page cache"), (4, "private page cache"), (8, "user data"), (16, "free pages"))


def dump_file_notes(path: str) -> list[str]:
    """Return one line for each thing that the dump ``path`` lacks. Never raises for what the file holds."""
    try:
        with open(path, "rb") as file:
            return list(_notes(file))
    except (OSError, struct.error):
        return []  # drgn has the dump open already and has read what it could


def is_cut_kdump(path: str) -> bool:
    """Return whether the dump has makedumpfile's compressed format and ends before its last page."""
    try:
        with open(path, "rb") as file:
            return file.read(8) == SIGNATURE and TRUNCATED in _notes(file)
    except (OSError, struct.error):
        return False


def reader_of(file: BinaryIO) -> tuple[Callable[[int, int], bytes], int]:
    """Return a function that returns up to ``count`` bytes at an offset of the file, and the file's size."""
    size = file.seek(0, 2)

    def read(offset: int, count: int) -> bytes:
        if not 0 <= offset < size or count <= 0:
            return b""
        file.seek(offset)
        return file.read(min(count, size - offset))

    return read, size


def _notes(file: BinaryIO) -> Iterator[str]:
    """Yield the lines for a dump of either format."""
    read, size = reader_of(file)
    magic = read(0, 8)
    if magic == SIGNATURE:
        yield from _kdump(read, size)
    elif magic[:4] == b"\x7fELF":
        yield from _elf(read, size)


def _elf(read: elf.Read, size: int) -> Iterator[str]:
    """Yield the lines for an ELF dump."""
    try:
        header = elf.parse(read, "the dump")
    except (CorruptError, TruncatedError):
        return
    loads = list(header.loads())
    lost = sum(load.filesz - max(0, min(load.filesz, size - load.offset)) for load in loads)
    if lost:
        whole = sum(load.filesz for load in loads)
        yield f"the dump is truncated: {lost} of {whole} bytes of memory are missing, and from the answers too"
    left_out = sum(max(0, load.memsz - load.filesz) for load in loads)
    if left_out:
        yield f"the dump was filtered: {left_out} bytes of memory were left out when it was taken"


class _Header(NamedTuple):
    """The fields of struct disk_dump_header that are needed here."""

    status: int
    block: int
    sub_blocks: int
    bitmap_blocks: int


def _kdump(read: elf.Read, size: int) -> Iterator[str]:
    """Yield the lines for a dump in makedumpfile's compressed format."""
    header = _Header(*_STATUS.unpack(read(_STATUS_AT, _STATUS.size)))
    if header.block <= 0 or header.block & (header.block - 1) or header.sub_blocks < 0:
        return
    _phys_base, level, split = _SUB_HEADER.unpack(read(header.block, _SUB_HEADER.size))
    left_out = [what for bit, what in _LEFT_OUT if 0 < level < 64 and level & bit]
    if left_out:
        yield f"the dump was filtered (makedumpfile -d {level}): without {', '.join(left_out)}"
    if header.status & _INCOMPLETE or (not split and _ends_early(read, size, header)):
        yield TRUNCATED


def _ends_early(read: elf.Read, size: int, header: _Header) -> bool:
    """Return whether pages that the second bitmap lists lie beyond the end of the file.

    Pages are in order, so the last ones tell.
    """
    bitmap = header.bitmap_blocks * header.block // 2
    second = header.block * (1 + header.sub_blocks) + bitmap
    descriptors = second + bitmap
    if bitmap > _MAX_BITMAP:
        return False
    if descriptors > size:
        return True
    steps = ((at, min(_STEP, descriptors - at)) for at in range(second, descriptors, _STEP))
    # Zeros are stripped, because a crafted bitmap may have a gigabyte of them.
    pages = sum(bin(int.from_bytes(read(at, length).rstrip(b"\0"), "little")).count("1") for at, length in steps)
    count = min(pages, _LAST)
    last = read(descriptors + (pages - count) * _DESCRIPTOR.size, count * _DESCRIPTOR.size)
    if len(last) < count * _DESCRIPTOR.size:
        return True
    return any(offset + length > size for offset, length, _flags, _page_flags in _DESCRIPTOR.iter_unpack(last))
