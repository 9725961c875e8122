"""Line numbers from the tables in code objects: the three forms of 3.9, of 3.10, and of 3.11 and later."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Optional

_NONE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10  # PEP 657, Objects/locations.md: the kinds of entries
_UNIT = 2  # bytes of an instruction


@lru_cache(maxsize=1 << 14)  # many frames stand at the same place
def line_of(form: str, table: bytes, first: int, offset: int) -> Optional[int]:
    """Return the line of the instruction ``offset`` bytes into the code, or None where it has none.

    ``first`` is co_firstlineno. It is the line of a frame that has not begun, too (a negative offset), as in
    PyCode_Addr2Line (Objects/codeobject.c).
    """
    if offset < 0:
        return first
    if form == "lnotab":
        return _lnotab(table, first, offset)
    entries = _linetable(table, first) if form == "linetable" else _locations(table, first)
    start = 0
    for size, line in entries:
        if start <= offset < start + size:
            return line
        start += size
    return None


def _lnotab(table: bytes, first: int, offset: int) -> int:
    """Return the line by Objects/lnotab_notes.txt of 3.9: pairs of (bytes, signed lines)."""
    line, at = first, 0
    for index in range(0, len(table) - 1, 2):
        at += table[index]
        if at > offset:
            break
        line += _signed(table[index + 1])
    return line


def _linetable(table: bytes, first: int) -> Iterator[tuple[int, Optional[int]]]:
    """Yield (bytes, line) by Objects/lnotab_notes.txt of 3.10: pairs of (bytes, signed lines; -128: no line)."""
    line = first
    for index in range(0, len(table) - 1, 2):
        step = _signed(table[index + 1])
        line += step if step != -128 else 0
        yield table[index], line if step != -128 else None


def _locations(table: bytes, first: int) -> Iterator[tuple[int, Optional[int]]]:
    """Yield (bytes, line) by Objects/locations.md. An entry begins with the byte that has its highest bit set."""
    line, at = first, 0
    while at < len(table):
        head = table[at]
        kind, size = head >> 3 & 15, ((head & 7) + 1) * _UNIT
        end = at + 1
        while end < len(table) and not table[end] & 0x80:
            end += 1
        if kind in (_LONG, _NO_COLUMNS):
            line += _signed_varint(table[at + 1 : end])
        elif _ONE_LINE <= kind < _NO_COLUMNS:
            line += kind - _ONE_LINE
        yield size, line if kind != _NONE else None
        at = end


def _signed_varint(data: bytes) -> int:
    value, shift = 0, 0
    for byte in data:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64 or shift > 60:
            break
    return -(value >> 1) if value & 1 else value >> 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
