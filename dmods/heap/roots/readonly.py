"""Read-only mappings of files that hold pointers: memory that the program wrote and then made read-only.

The access at the time of the dump says nothing. Programs seal tables (mprotect), map shared memory twice, and write
code through another mapping. So all that the dump has of such memory counts. The one exception is what the linker wrote
into the file of a program or a library: constants and code look like pointers where the heap has low addresses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Optional

from dmods._engine import find_pointers
from dmods.base.ranges import Ranges
from dmods.modules.elf import MAGIC
from dmods.modules.localfiles import was_deleted
from dmods.process.mappings import is_named_memory
from dmods.target import AddressRange, Module, Target

_PAGE = 4096
_KERNEL = 1 << 63  # the addresses of the kernel, where x86-64's vsyscall page lies
_MOST_UNREADABLE = 1 << 12  # execute-only mappings
_MOST_ZEROS = 16 << 20  # bytes of one
_READ = 1 << 20
_STEP = 64 << 20  # bytes that are searched at once
_MOST_WORDS = 1 << 16  # words of a step into one part of the heap that are compared with the file


def unreadable_code(target: Target) -> list[AddressRange]:
    """Return the execute-only mappings that the kernel could not read when it wrote the core.

    With protection keys (x86), mmap(PROT_EXEC) makes memory that nobody can read (mm/mmap.c, execute_only_pkey). The
    core then has zeros for it. Memory that was never written is not in a core at all (fs/coredump.c, vma_dump_size).
    """
    if target.path is None:
        return []
    found = (m for m in target.mappings() if m.flags == "--x" and m.dumped and m.start < _KERNEL)
    return [
        m for m in islice(found, _MOST_UNREADABLE) if (m.path is None or is_named_memory(m.path)) and _zeros(target, m)
    ]


def _zeros(target: Target, mapping: AddressRange) -> bool:
    """Return whether the dump has only zeros of the mapping. Of a large one, only the beginning is read."""
    image, end = target.image(), mapping.start + min(mapping.dumped, _MOST_ZEROS)
    parts = (image.read(start, min(_READ, end - start)) for start in range(mapping.start, end, _READ))
    return not any(part.strip(b"\0") for part in parts)


class ReadOnly:
    """Finds what was written in read-only mappings of files. ``owned`` is the memory of the allocators."""

    def __init__(self, target: Target, owned: Ranges) -> None:
        self._target, self._owned = target, list(owned)
        self._modules: dict[str, Module] = {}
        for module in target.modules():
            self._modules.setdefault(module.path, module)

    def written(self, mapping: AddressRange) -> Iterator[tuple[int, int]]:
        """Yield the parts of the mapping that may hold a pointer which the program wrote."""
        module = self._modules.get(mapping.path or "")
        end = mapping.start + mapping.dumped
        if module is None:
            yield mapping.start, end
        elif module.file is not None:
            yield from self._changed(mapping, module.file)
        elif self._target.image().read(mapping.start, len(MAGIC)) != MAGIC:
            # The kernel dumps code and constants only where they were written (fs/coredump.c, vma_dump_size), or where
            # it was told to dump all. But it always dumps the page with the ELF header, and gdb the mapping around it.
            yield mapping.start, end

    def is_plain_file(self, mapping: AddressRange) -> bool:
        """Return whether the mapping is of a file on a disk that is no program and no library."""
        path = mapping.path or ""
        return path not in self._modules and not is_named_memory(path) and not was_deleted(path)

    def _changed(self, mapping: AddressRange, file: str) -> Iterator[tuple[int, int]]:
        """Yield the words into the heap that are not in the file, too."""
        image, word, end = self._target.image(), self._target.arch.word, mapping.start + mapping.dumped
        for start in range(mapping.start, end, _STEP):
            part = (start, min(start + _STEP, end))
            found = find_pointers(image, [part], word, self._owned, _MOST_WORDS)
            if any(len(places) >= _MOST_WORDS for places in found):
                yield part
                continue
            places = sorted(at for places in found for at in places)
            yield from self._unlike(mapping, file, places)

    def _unlike(self, mapping: AddressRange, file: str, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the words at the addresses that the file has other bytes for. Where it cannot be read, it has none."""
        image, word = self._target.image(), self._target.arch.word
        descriptor: Optional[int] = None
        page, there = -1, b""
        with suppress(OSError):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC) if places else None
        try:
            for at in places:
                offset = mapping.offset + at - mapping.start
                if offset // _PAGE != page:
                    page, there = offset // _PAGE, b""
                    with suppress(OSError, OverflowError):
                        there = os.pread(descriptor, _PAGE, page * _PAGE) if descriptor is not None else b""
                if there[offset % _PAGE : offset % _PAGE + word] != image.read(at, word):
                    yield at, at + word
        finally:
            if descriptor is not None:
                os.close(descriptor)
