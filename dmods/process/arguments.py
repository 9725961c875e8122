"""The arguments and the environment of a process, from the top of the stack of its first thread.

The kernel puts there: argc, the pointers of argv and NULL, those of the environment and NULL, the auxiliary vector, and
above it all strings (fs/binfmt_elf.c, create_elf_tables(); System V ABI, "Initial Process Stack").
"""

from __future__ import annotations

import struct
from typing import Optional

from dmods.modules.auxv import AT_ENTRY, AT_RANDOM
from dmods.process.mappings import mapping_at
from dmods.target import AddressRange, Target

_ABOVE = 4096  # bytes between the auxiliary vector, which has about 340 bytes, and the random bytes
_MOST_POINTERS = 1 << 16  # of the arguments and the environment
_MOST_ARGUMENTS = 64
_LONGEST = 256  # bytes of one argument


def arguments(target: Target) -> list[str]:
    """Return the first arguments, the program's name first; [] where the dump does not have them."""
    return [_text(target, at) for at in _pointers(target)[0][:_MOST_ARGUMENTS]]


def variable(target: Target, name: str) -> Optional[str]:
    """Return the value that a variable had in the environment when the program started, or None.

    None also stands for a dump without the top of the stack. A longer value is cut.
    """
    found = (_text(target, at).partition("=") for at in _pointers(target)[1])
    return next((value for known, _equals, value in found if known == name), None)


def _pointers(target: Target) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the addresses of the arguments, and those of the variables of the environment."""
    word, code = target.arch.word, "Q" if target.arch.word == 8 else "I"
    vector = _auxiliary_vector(target, code)
    mapping = mapping_at(target, vector) if vector is not None else None
    if vector is None or mapping is None:
        return (), ()
    start = max(mapping.start, vector - _MOST_POINTERS * word)
    raw = target.image().read(start, vector - start)
    if len(raw) < vector - start:
        return (), ()
    words = struct.unpack(f"<{len(raw) // word}{code}", raw[len(raw) % word :])
    # From there down: the pairs before AT_ENTRY, which may hold zeros, then as above.
    for end in (index for index in range(len(words) - 1, -1, -1) if words[index] == 0):
        found = _counted(words, end, vector, mapping)
        if found:
            behind = words[end + 1 :]
            return found, behind[: behind.index(0)] if 0 in behind else ()
    return (), ()


def _auxiliary_vector(target: Target, code: str) -> Optional[int]:
    """Return the address of the pair AT_ENTRY of the auxiliary vector in memory, or None."""
    random, entry = target.auxv.get(AT_RANDOM), target.auxv.get(AT_ENTRY)
    if random is None or entry is None or random < _ABOVE:
        return None
    raw = target.image().read(random - _ABOVE, _ABOVE)
    at = raw.rfind(struct.pack(f"<2{code}", AT_ENTRY, entry))
    return random - _ABOVE + at if at >= 0 else None


def _counted(words: tuple[int, ...], end: int, vector: int, mapping: AddressRange) -> tuple[int, ...]:
    """Return the pointers before the NULL at ``end``, if their number stands before them, or ().

    They point to strings above the vector. getopt() of GNU permutes them: their order says nothing.
    """
    start = end - 1
    while start >= 0 and vector < words[start] < mapping.end:
        start -= 1
    return words[start + 1 : end] if start >= 0 and 0 < words[start] == end - 1 - start else ()


def _text(target: Target, address: int) -> str:
    raw = target.image().read(address, _LONGEST)
    return raw.split(b"\0")[0].decode("utf-8", "backslashreplace")
