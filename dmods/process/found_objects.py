"""The tables in which ``_dl_find_object`` finds the library of an address (glibc 2.35 and later, elf/dl-find_object.c).

dlopen() makes them with malloc(), with room for more libraries than there are. What lay there before stays behind the
rows in use, maybe pointers to blocks that were lost since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from dmods.base.words import Words
from dmods.errors import FaultError
from dmods.modules.auxv import AT_BASE
from dmods.target import Target

_LINE = 128  # bytes: cache_line_size_estimate. A table begins at a multiple; its block may be so much larger
_GRANULE = 16  # MALLOC_ALIGNMENT
_HEADER = 4  # words: the table before, the block for free(), rows in use, rows
_ROWS = (4, 5, 6)  # words of a row: where a library begins and ends, its link_map, .eh_frame_hdr, and newer ones
_SPARE = 128  # rows that are not in use, at most, besides as many as are. glibc 2.36 and 2.41 make 64 more
_MOST_CHECKED, _MOST_TABLES = 64, 1 << 16
_MOST_DATA = 1 << 20  # bytes of ld.so's data


def false_pointers(target: Target) -> Iterator[tuple[int, int]]:
    """Yield the parts of the tables' blocks that are not in use. Nothing where ld.so has no such tables."""
    words = Words(target.image(), target.arch.word)
    waiting = list(dict.fromkeys(at for at in _data(target) if at and at % _LINE == 0))
    seen = set(waiting)
    for at in waiting:
        before, block, used, rows = words.many(at, _HEADER) or (0, 0, 0, 0)
        proper = used <= rows <= 2 * used + _SPARE and 0 <= at - block < _LINE and before % _LINE == 0
        start = at + _HEADER * words.size
        size = _row_size(words, start, used) if proper and block else None
        if size is None:
            continue
        yield block, at
        yield start + used * size, _end(words, block, start + rows * size)
        if before and before not in seen and len(waiting) < _MOST_TABLES:
            seen.add(before)
            waiting.append(before)


def _data(target: Target) -> list[int]:
    """Return the words of ld.so's data."""
    base, word = target.auxv.get(AT_BASE, 0), target.arch.word
    found: list[int] = []
    for module in target.modules():
        if base and module.start == base:
            for piece in module.ranges:
                if "w" in piece.flags:
                    size = min(piece.end - piece.start, _MOST_DATA) // word * word
                    try:
                        found += memoryview(target.read(piece.start, size)).cast("Q" if word == 8 else "I")
                    except FaultError:
                        continue
    return found


def _end(words: Words, block: int, end: int) -> int:
    """Return the end of a table's block. glibc's header before it says where; else ``end``, that of the table."""
    chunk = (words.at(block - words.size) or 0) & ~7
    last = block + chunk - words.size
    return last if end <= last <= end + _LINE + _GRANULE else end


def _row_size(words: Words, start: int, used: int) -> Optional[int]:
    """Return the bytes of a row: the rows in use are sorted by address, and each ends behind its beginning."""
    for count in _ROWS:
        rows = [words.many(start + number * count * words.size, 2) for number in range(min(used, _MOST_CHECKED))]
        bounds = [bound for row in rows for bound in row or (1, 0)]
        if bounds == sorted(set(bounds)):
            return count * words.size
    return None
