"""The files that a process has open with glibc's stdio, and what it has not written to them.

glibc links all its ``FILE`` structures (``_IO_list_all``, libio/genops.c). Their public part is the same in every
release of 64 bits (libio/bits/types/struct_FILE.h, glibc 2.28 to 2.41).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dmods.base.cached import cached
from dmods.base.named_tuple import NamedTuple
from dmods.errors import FaultError
from dmods.target import Target

_LIST = "_IO_list_all"
_MOST = 1 << 16  # files
_FILE = struct.Struct("<I4x8Q")  # _flags, then the pointers from _IO_read_ptr to _IO_buf_end
_POINTERS, _WORD = 8, 8  # the offset of _IO_read_ptr
_WRITE_BASE, _WRITE_PTR, _BUF_BASE, _BUF_END = 3, 4, 6, 7  # of the pointers
_CHAIN, _FILENO, _SIZE = 104, 112, 116
_MAGIC, _MAGIC_MASK = 0xFBAD0000, 0xFFFF0000  # _IO_MAGIC
_WRITING = 0x800  # _IO_CURRENTLY_PUTTING
_MOST_BUFFER = 1 << 30


class OpenFile(NamedTuple):
    """A ``FILE`` with a descriptor. ``unwritten`` bytes from ``pending`` on are in its buffer only."""

    address: int
    descriptor: int
    pending: int
    unwritten: int


def open_files(target: Target) -> list[OpenFile]:
    """Return the files that stdio has open, the last opened first; an empty list without glibc.

    A list that is damaged, or in memory that the dump lacks, gives the files before that place.
    """
    found: list[OpenFile] = []
    for at, raw in _structures(target):
        flags, *pointers = _FILE.unpack_from(raw)
        (descriptor,) = struct.unpack_from("<i", raw, _FILENO)
        base, write = pointers[_WRITE_BASE], pointers[_WRITE_PTR]
        left = write - base if flags & _WRITING and 0 <= write - base <= _MOST_BUFFER else 0
        if descriptor >= 0:
            found.append(OpenFile(at, descriptor, base if left else 0, left))
    return found


def false_pointers(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the words of ``FILE`` structures that look like pointers and are not pointers.

    The first is ``_flags``, an int: beside it lies what was in that memory before, maybe the upper half of a pointer.
    Others point behind the file's buffer: to no part of it, but maybe to another block.
    """
    if target.arch.word != _WORD:
        return
    for at, raw in _structures(target):
        yield at, at + _WORD
        _flags, *pointers = _FILE.unpack_from(raw)
        if pointers[_BUF_BASE] < pointers[_BUF_END]:
            for number, pointer in enumerate(pointers):
                if pointer == pointers[_BUF_END]:
                    word = at + _POINTERS + number * _WORD
                    yield word, word + _WORD


def own_blocks(target: Target) -> list[int]:
    """Return where the ``FILE`` structures and their buffers begin, sorted.

    A buffer holds bytes, whatever these look like. fopen() clears no part of a structure that narrow text does not need
    (libio/wgenops.c, _IO_wide_data): old pointers remain there. What a structure does hold nobody else has.
    """
    if target.arch.word != _WORD:
        return []
    found: set[int] = set()
    for at, raw in _structures(target):
        _flags, *pointers = _FILE.unpack_from(raw)
        found.add(at)
        if pointers[_BUF_BASE] < pointers[_BUF_END]:
            found.add(pointers[_BUF_BASE])
    return sorted(found)


@cached
def _structures(target: Target) -> list[tuple[int, bytes]]:
    """Return the address and the bytes of each ``FILE``."""
    head = target.lookup(_LIST)
    found: dict[int, bytes] = {}
    try:
        at = int.from_bytes(target.read(head.address, _WORD), "little") if head is not None else 0
        while at and at not in found and len(found) < _MOST:
            raw = target.read(at, _SIZE)
            if int.from_bytes(raw[:4], "little") & _MAGIC_MASK != _MAGIC:
                break
            found[at] = raw
            (at,) = struct.unpack_from("<Q", raw, _CHAIN)
    except FaultError:
        pass
    return list(found.items())
