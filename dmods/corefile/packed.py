"""Dumps that were compressed as a whole: which form they have, what is in them, and how they become plain files."""

from __future__ import annotations

import os
from typing import Callable, Optional

from dmods.base.named_tuple import NamedTuple
from dmods.errors import CorruptError, TruncatedError
from dmods.modules import elf

# The first bytes of a file: RFC 1952; the XZ format 2.1.1.1; bzip2; RFC 8878, 3.1.1; the LZ4 frame format.
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
)
#: The first bytes of a kernel's dump that makedumpfile wrote: struct disk_dump_header, and its flattened form.
KDUMP = (b"KDUMP   ", b"makedump")
#: The first bytes of a minidump (llvm/BinaryFormat/Minidump.h).
MINIDUMP = b"MDMP"
_HEAD = 1 << 20  # bytes that are unpacked to see what it is: program headers of 18,000 mappings
_STEP = 64 << 20  # bytes between two reports
#: What may follow the last segment of a core: section headers (of gcore, or of a core with 65,535 mappings).
BEHIND = 64 << 20

Report = Callable[[int], None]


class Unpacked(NamedTuple):
    """A file that was unpacked: its size with holes and without, and what is wrong with the packed file, or None.

    ``full`` says that it was stopped at a limit.
    """

    size: int
    stored: int
    damage: Optional[str]
    full: bool


class Limits(NamedTuple):
    """The most bytes that are unpacked: with holes, and stored on the disk."""

    size: int
    room: int


def form_of_bytes(head: bytes) -> Optional[str]:
    """Return the name of the compression by a file's first 8 bytes, or None for a file that is not compressed."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def form_of(path: str) -> Optional[str]:
    """Return the name of the compression, or None for a file that is not compressed. Raises OSError."""
    with open(path, "rb") as file:
        return form_of_bytes(file.read(8))


def head_of(path: str, form: str, count: int = _HEAD) -> bytes:
    """Return the first bytes of what is in a compressed file; fewer where it is damaged or cannot be read."""
    from dmods._engine import unpacked_head

    try:
        return unpacked_head(path, form, count)
    except OSError:
        return b""


def is_dump(head: bytes) -> bool:
    """Return whether these are the first bytes of a core, of a minidump, or of the dump of a kernel."""
    if head[:8] in KDUMP or head.startswith(MINIDUMP):
        return True
    if head[:4] != elf.MAGIC or len(head) < 18:
        return False
    return int.from_bytes(head[16:18], "big" if head[5] == 2 else "little") == elf.ET_CORE  # EI_DATA


def promised_size(head: bytes) -> Optional[int]:
    """Return how many bytes the headers of a core promise, or None where they do not say it."""

    def read(offset: int, size: int) -> bytes:
        return head[offset : offset + size] if 0 <= offset < len(head) and size > 0 else b""

    try:
        header = elf.parse(read, "")
    except (CorruptError, TruncatedError, OverflowError):
        return None
    if not header.segments or len(header.segments) < header.promised:
        return None
    return max(each.offset + each.filesz for each in header.segments)


def unpack(path: str, form: str, to: str, limits: Limits, report: Report) -> Unpacked:
    """Unpack into the empty file ``to``. Zeros become holes. ``report`` gets the packed bytes that were read.

    The result ends early where the file is damaged, and where a limit is reached. Raises OSError where a file cannot be
    read or written, and what ``report`` raises.
    """
    from dmods._engine import Unpacker

    unpacker, size, stored, ended, damage = Unpacker(path, form, to), 0, 0, False, None
    while not ended:
        if size >= limits.size or stored >= limits.room:
            os.truncate(to, min(size, limits.size))
            return Unpacked(min(size, limits.size), stored, None, True)
        step = min(_STEP, limits.size - size, max(1, limits.room - stored))
        size, stored, packed, ended, damage = unpacker.step(step)
        report(packed)
    return Unpacked(size, stored, damage, False)
