"""The auxiliary vector of a dump whose notes lack it, or have another program's.

The kernel writes it on the first thread's stack, above the environment (fs/binfmt_elf.c, create_elf_tables). valgrind
builds the same stack for its client (coregrind/m_initimg/initimg-linux.c) and leaves the note out of its cores. The
stub of UPX 4.2 replaces the program, and so corrects the vector on the stack (src/stub/src/amd64-linux.elf-main.c,
auxv_up): the kernel's own copy, which a core's note has, stays that of the stub.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import Optional

from dmods.modules.auxv import AT_BASE, AT_ENTRY, AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM
from dmods.modules.elf import ET_DYN, ET_EXEC, MAGIC, PT_INTERP, Elf, Read
from dmods.modules.headers import in_memory, shifted
from dmods.modules.linkmap import bias_of, debug_address, walk

_MOST_BYTES = 4 << 20  # at the end of a stack; the arguments and the environment lie above the vector
_MOST_STACKS = 64
_MOST_ENTRIES = 64  # the kernel writes about 20
_LAST_KEY = 64  # AT_MINSIGSTKSZ, 51, is the highest in Linux 6.12
_MOST_HEADERS = 1 << 12
_MOST_TRIES = 1 << 8  # places of a stack that may be a vector
_MOST_FILES = 1 << 12  # ELF headers that are looked at
_PHENT = {8: 56, 4: 32}  # sizeof(Elf64_Phdr), sizeof(Elf32_Phdr)


def auxv_on_stack(stacks: Iterable[tuple[int, int]], read: Read, word: int) -> dict[int, int]:
    """Return the auxiliary vector (a_type -> a_val) that the first of the stacks has, or {}.

    ``stacks`` are (start, end) of memory that may hold the first thread's stack.
    """
    for number, (start, end) in enumerate(stacks):
        if number >= _MOST_STACKS:
            break
        begin = max(start, end - _MOST_BYTES) & -word
        found = _vector_in(read(begin, end - begin), word)
        if found:
            return found
    return {}


def _vector_in(data: bytes, word: int) -> dict[int, int]:
    """Return the last auxiliary vector in the bytes, or {}. They begin at a multiple of the word size."""
    pair = struct.Struct("<QQ" if word == 8 else "<II")
    wanted = pair.pack(AT_PHENT, _PHENT[word])
    at = data.rfind(wanted)
    for _count in range(_MOST_TRIES):
        if at < 0:
            break
        if at % word == 0:
            found = _vector_around(data, at, pair)
            if _is_whole(found):
                return found
        at = data.rfind(wanted, 0, at + len(wanted) - 1)
    return {}


def _vector_around(data: bytes, at: int, pair: struct.Struct) -> dict[int, int]:
    """Return the entries around the one at ``at``, up to AT_NULL; {} where no AT_NULL ends them."""
    first = at
    # Before the vector is the NULL that ends the environment, and a pointer or another NULL before that.
    for _count in range(_MOST_ENTRIES):
        before = first - pair.size
        if before < 0 or not 0 < pair.unpack_from(data, before)[0] <= _LAST_KEY:
            break
        first = before
    found: dict[int, int] = {}
    for place in range(first, min(len(data) - pair.size + 1, first + 2 * _MOST_ENTRIES * pair.size), pair.size):
        key, value = pair.unpack_from(data, place)
        if key == 0:
            return found
        found[key] = value
    return {}


def _is_whole(found: dict[int, int]) -> bool:
    if not 0 < found.get(AT_PHNUM, 0) <= _MOST_HEADERS:
        return False
    return all(found.get(key) for key in (AT_PHDR, AT_ENTRY, AT_PAGESZ))


def program_in_memory(starts: Iterable[int], read: Read, word: int) -> dict[int, int]:
    """Return AT_PHDR, AT_PHNUM, AT_ENTRY and AT_BASE of the program whose header begins one of the mappings, or {}.

    It is the one whose DT_DEBUG the dynamic linker has set: linkers write this entry into programs alone.
    """
    for start in islice((start for start in starts if read(start, 4) == MAGIC), _MOST_FILES):
        elf = in_memory(start, read)
        if elf is None or elf.word != word or elf.type not in (ET_EXEC, ET_DYN):
            continue
        address = start + elf.headers_at
        bias = bias_of(elf.segments, address)
        if bias is not None and debug_address(read, elf.segments, bias, word):
            entries = {AT_PHDR: address, AT_PHNUM: len(elf.segments), AT_ENTRY: bias + elf.entry}
            base = _base(elf, bias, read, word)
            return {**entries, AT_BASE: base} if base else entries
    return {}


def _base(elf: Elf, bias: int, read: Read, word: int) -> Optional[int]:
    """Return where the dynamic linker is mapped: the bias of the object with the name that PT_INTERP has."""
    for segment in elf.segments:
        if segment.type == PT_INTERP:
            name = shifted(read, bias)(segment.vaddr, min(segment.memsz, 4096)).split(b"\0")[0]
            text = name.decode("utf-8", "surrogateescape")
            return next((each.bias for each in walk(read, elf.segments, bias, word) if each.name == text), None)
    return None
