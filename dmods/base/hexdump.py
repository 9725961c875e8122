"""Bytes as people read them: hexadecimal beside ASCII."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

ROW = 16
_READ = 1 << 16
_TOP = 1 << 64

HexRow = tuple[int, str, str]


def hex_rows(read: Callable[[int, int], bytes], start: int, size: int, group: int = 1) -> Iterator[HexRow]:
    """Yield (address, hex, ASCII) for every 16 bytes of ``[start, start + size)``, until ``read`` gives no more.

    ``read(address, size)`` returns the bytes that are there, at most ``size``. ``group`` bytes stand together: mdb's
    ::dump groups by four.
    """
    at, end = start, min(start + size, _TOP)
    while at < end:
        wanted = min(_READ, end - at)
        data = read(at, wanted)
        for offset in range(0, len(data), ROW):
            part = data[offset : offset + ROW]
            yield at + offset, part.hex(" ", -group), ascii_of(part)
        if len(data) < wanted:
            return
        at += wanted


def ascii_of(data: bytes) -> str:
    """Return the bytes as ASCII, with a dot for each byte that is not printable."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
