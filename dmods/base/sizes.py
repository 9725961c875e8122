"""Sizes written for people."""

from __future__ import annotations

_UNITS = "KMGTPE"


def counted(count: int, one: str, more: str = "") -> str:
    """Return a number with its noun: "1 block", "2,345 blocks", "1 entry", "2 entries"."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def human_size(size: int) -> str:
    """Return a number of bytes in three or four characters: 512, 1.5K, 96M, 1.0G.

    Units are powers of 1024. There is one decimal below ten, as in `ls -h`. The number is rounded to the nearest, where
    `ls` rounds up. A negative size, such as a difference, keeps its sign.
    """
    if size < 0:
        return "-" + human_size(-size)
    if size < 1024:
        return str(size)
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    tenths = _rounded(size * 10, 1024**power)
    if tenths < 100:
        return f"{tenths // 10}.{tenths % 10}{_UNITS[power - 1]}"
    whole = _rounded(size, 1024**power)
    if whole == 1024 and power < len(_UNITS):
        return f"1.0{_UNITS[power]}"
    return f"{whole}{_UNITS[power - 1]}"


def _rounded(value: int, unit: int) -> int:
    return (value + unit // 2) // unit
