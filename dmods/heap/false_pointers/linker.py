"""Numbers that the linker and the dynamic linker wrote, before there was a heap to point into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from dmods.allocators.search import WINDOW, Search
from dmods.modules.auxv import AT_BASE
from dmods.target import AddressRange

_MOST_SMALL_MAPPINGS = 64
_LONGEST_VERSION = 64


def unchanged_data(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words of modules' data that look like pointers and still have the value that the file has.

    Examples are libc's `randtbl`, 31 random words, and ld.so's `tunable_list`, which is text: where the heap of i386
    begins every address is text, 0x58414d5f is "_MAX". Only files that are proven to be those of the process are read.
    """
    if not search.low:
        return
    for module in search.target.modules():
        if module.file is None or module.problem is not None:
            continue
        try:
            descriptor = os.open(module.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            for piece in module.ranges:
                if piece.path is not None:
                    yield from _unchanged(search, descriptor, piece)
        finally:
            os.close(descriptor)


def _unchanged(search: Search, descriptor: int, piece: AddressRange) -> Iterator[tuple[int, int]]:
    word = search.target.arch.word
    for at, value in search.lookalikes(search.roots_in([(piece.start, piece.end)]), search.low):
        in_file = os.pread(descriptor, word, piece.offset + at - piece.start)
        if int.from_bytes(in_file, "little") == value:
            yield search.word_range(at)


def loader_read_only(search: Search) -> Iterator[tuple[int, int]]:
    """Yield ld.so's memory that may not be written any more (PT_GNU_RELRO).

    `_rtld_global_ro` lies there, with the bits of the CPU's features. It was written before the first malloc().
    """
    base = search.target.auxv.get(AT_BASE, 0)
    for module in search.target.modules():
        if base and module.start == base:
            yield from ((piece.start, piece.end) for piece in module.ranges if "w" not in piece.flags)


def version_hashes(search: Search) -> Iterator[tuple[int, int]]:
    """Yield words that look like pointers and are hashes of symbol versions ("GLIBC_2.34").

    ld.so allocates them as it starts. Each stands behind a pointer to its name (`struct r_found_version`).
    """
    if not search.low:
        return
    mappings = (m for m in search.target.mappings() if m.path is None and "w" in m.flags and m.size <= WINDOW)
    small = [(mapping.start, mapping.end) for mapping in islice(mappings, _MOST_SMALL_MAPPINGS)]
    word, image = search.target.arch.word, search.target.image()
    for at, value in search.lookalikes(search.roots_in(small), search.low):
        name, nul, _rest = image.read(search.word(at - word), _LONGEST_VERSION).partition(b"\0")
        if nul and name and _elf_hash(name) == value:
            yield search.word_range(at)


def _elf_hash(name: bytes) -> int:
    """Return the System V hash of a name (gABI, "Hash Table"), as .gnu.version_r has it."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ value >> 24 & 0xF0) & 0xFFFFFFF
    return value
