"""Flattened dumps: the form that makedumpfile -F writes to a pipe.

Records follow a header of a page: the offset in the plain dump and the number of bytes, both big-endian, and the bytes.
The last record has -1 for both (makedumpfile.h: struct makedumpfile_header, struct makedumpfile_data_header;
IMPLEMENTATION, "The flattened format"). A later record replaces what an earlier one wrote.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Callable, Optional

from dmods.base.named_tuple import NamedTuple

MAGIC = b"makedumpfile\0\0\0\0"  # struct makedumpfile_header
RECORD = struct.Struct(">qq")  # struct makedumpfile_data_header
HEADER = 4096
_MOST_RECORDS = 1 << 24
# The headers, notes and bitmaps come first in a dump. Records of pages are not kept.
_KEPT = 64 << 20
_MOST_KEPT = 1 << 16

Read = Callable[[int, int], bytes]


class Record(NamedTuple):
    """A record: its offset in the plain dump, its bytes, and where they are in the flattened file."""

    offset: int
    length: int
    at: int


def _records(read: Read, size: int) -> Iterator[Optional[Record]]:
    """Yield the records of a flattened file, whose bytes ``read`` returns, then None if its last one is there."""
    at = HEADER
    for _count in range(_MOST_RECORDS):
        head = read(at, RECORD.size)
        if len(head) < RECORD.size:
            return
        offset, length = RECORD.unpack(head)
        if (offset, length) == (-1, -1):
            yield None
            return
        if offset < 0 or not 0 < length <= size - at - RECORD.size:
            return
        yield Record(offset, length, at + RECORD.size)
        at += RECORD.size + length
    yield None  # drgn can have a dump of so many records


class Index(NamedTuple):
    """The records of the beginning of the plain dump, which has all but pages, and the plain dump's size.

    ``whole``: the last record is there.
    """

    records: Sequence[Record]
    size: int
    whole: bool


# The index of the last file, by the file's identity: making it takes a pass over the file.
_known: dict[tuple[int, ...], Index] = {}


def reader_of(file: BinaryIO) -> tuple[Read, int]:
    """Return a function that returns up to ``count`` bytes at an offset of the file, and the file's size."""
    size = file.seek(0, 2)

    def read(offset: int, count: int) -> bytes:
        if not 0 <= offset < size or count <= 0:
            return b""
        file.seek(offset)
        return file.read(min(count, size - offset))

    return read, size


def plain_reader_of(file: BinaryIO) -> tuple[Read, int]:
    """Return the same of the plain dump, if the file is a flattened one: all before its pages can be read."""
    read, size = reader_of(file)
    if read(0, len(MAGIC)) != MAGIC:
        return read, size
    found = index_of(file)
    return _plain(read, found), found.size


def index_of(file: BinaryIO) -> Index:
    """Return the index of a flattened file."""
    status = os.fstat(file.fileno())
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _known:
        _known.clear()
        _known[key] = _index(*reader_of(file))
    return _known[key]


def _index(read: Read, size: int) -> Index:
    kept: list[Record] = []
    end, whole = 0, False
    for record in _records(read, size):
        if record is None:
            whole = True
            break
        end = max(end, record.offset + record.length)
        if record.offset < _KEPT and len(kept) < _MOST_KEPT:
            kept.append(record)
    return Index(kept, end, whole)


def _plain(read: Read, found: Index) -> Read:
    """Return what reads the beginning of the plain dump. A part that the file lacks is zeros, as a hole is."""

    def read_plain(offset: int, count: int) -> bytes:
        count = min(count, found.size - offset, _KEPT - offset)
        if offset < 0 or count <= 0:
            return b""
        data = bytearray(count)
        for start, length, at in found.records:
            first, last = max(start, offset), min(start + length, offset + count)
            if first < last:
                piece = read(at + first - start, last - first)
                data[first - offset : first - offset + len(piece)] = piece
        return bytes(data)

    return read_plain
