"""The file of a kernel dump: whether it is complete, and which pages were left out on purpose.

Only headers are read here. drgn reads the memory. Where the file ends early, drgn fails at some address and does not
say why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Optional

from dmods.corefile import kdumps
from dmods.corefile.flattened import plain_reader_of, reader_of
from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf

_INCOMPLETE = 8  # DUMP_DH_COMPRESSED_INCOMPLETE: makedumpfile ran out of room
# struct page_desc: offset, size, flags, page_flags.
_DESCRIPTOR = struct.Struct("<QIIQ")
_MAX_BITMAP = 1 << 30  # bytes: 32 TB of memory
_STEP = 1 << 20
_LAST = 4096  # page descriptors to check; zero pages share the first page of the data

# makedumpfile(8), -d: the bits of the dump level. Leaving out pages of zeros (1) loses nothing: drgn knows them.
TRUNCATED = "the dump is truncated: pages are missing, and from the answers too"
PART = "the dump is one part of several (makedumpfile --split): "
REASSEMBLE = "put all parts together, in any order: makedumpfile --reassemble PART PART ... VMCORE"
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
            return file.read(8) == kdumps.SIGNATURE and TRUNCATED in _notes(file)
    except (OSError, struct.error):
        return False


def dump_level(path: Optional[str]) -> Optional[int]:
    """Return the level by which makedumpfile left out pages, or None if the dump does not say it (ELF files do not)."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            header = kdumps.read_header(plain_reader_of(file)[0])
    except (OSError, struct.error):
        return None
    return header.level if header is not None and 0 < header.level < 64 else None


def _notes(file: BinaryIO) -> Iterator[str]:
    """Yield the lines for a dump of either format."""
    read, size = plain_reader_of(file)
    if read(0, 4) == b"\x7fELF":
        yield from _elf(read, size)
        return
    header = kdumps.read_header(read)
    if header is not None:
        yield from _kdump(read, size, header, is_plain=read(0, 8) == reader_of(file)[0](0, 8))


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


def _kdump(read: elf.Read, size: int, header: kdumps.Header, is_plain: bool) -> Iterator[str]:
    """Yield the lines for a dump in makedumpfile's compressed format. drgn checks the end of a flattened one."""
    level = header.level
    left_out = [what for bit, what in _LEFT_OUT if 0 < level < 64 and level & bit]
    if left_out:
        yield f"the dump was filtered (makedumpfile -d {level}): without {', '.join(left_out)}"
    if header.part is not None:
        yield f"{PART}{_which(header.part)}; {REASSEMBLE}"
    if header.status & _INCOMPLETE or (header.part is None and is_plain and _ends_early(read, size, header)):
        yield TRUNCATED


def _which(part: kdumps.Part) -> str:
    """Return which part of a dump it is."""
    of = f" of {part.frames:#x}" if part.frames else ""
    order = "the first one" if not part.first else "the last one" if part.end >= part.frames > 0 else "a later one"
    return f"{order}, with page frames {part.first:#x} to {part.end:#x}{of}"


def _ends_early(read: elf.Read, size: int, header: kdumps.Header) -> bool:
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
