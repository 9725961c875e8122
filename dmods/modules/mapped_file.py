"""Mapped files, as NT_FILE and /proc/PID/maps list them."""

from __future__ import annotations

from dmods.base.named_tuple import NamedTuple


class FileMapping(NamedTuple):
    """An entry of NT_FILE: ``[start, end)`` maps ``path`` from byte ``offset`` on."""

    start: int
    end: int
    offset: int
    path: str
