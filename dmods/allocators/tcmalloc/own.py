"""Blocks that tcmalloc took for itself and dropped: they are no leaks of the program."""

from __future__ import annotations

from typing import Optional

from dmods import _engine
from dmods.base.words import Words
from dmods.target import Module, Target

_MOST = 1 << 16  # words that are looked at
_SMALL = 64  # a MallocExtension has nothing but its virtual table; under an auditor its block is larger
_TYPE = b"15MallocExtension\0"  # the name in its type_info (Itanium C++ ABI)


def own_blocks(target: Target, inner: _engine.Tcmalloc, module: Optional[Module]) -> list[int]:
    """Return the objects of the class MallocExtension itself.

    Until gperftools 2.10 the first one is allocated at the start, and then replaced by one of a derived class
    (malloc_extension.cc, MallocExtension::Register). They are told by their run-time type, which stripping leaves.
    """
    words, out = Words(target.image(), target.arch.word), []
    tables: dict[int, bool] = {}
    parts = [(part.start, part.end) for part in module.ranges] if module is not None else []
    parts.sort()
    places = _engine.find_pointers(target.image(), inner.small_spans(_SMALL), words.size, parts, _MOST)
    for place in sorted(at for some in places for at in some):
        table = words.at(place) or 0
        if table not in tables:
            tables[table] = _is_extension(words, table)
        if tables[table]:
            out.append(place)
    return out


def _is_extension(words: Words, table: int) -> bool:
    """Return whether a virtual table is that of MallocExtension: the word before it points to the type_info."""
    info = words.at(table - words.size)
    name = words.at(info + words.size) if info else None
    return bool(name) and words.image.read(name or 0, len(_TYPE)) == _TYPE
