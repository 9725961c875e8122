"""A core's PT_LOADs joined with its list of mapped files: the mappings of the process, and where the dump has their
bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dmods.corenotes import FileMapping
from dmods.elf import PF_R, PF_W, PF_X, TOP, Segment
from dmods.target import AddressRange


class Load(NamedTuple):
    """A PT_LOAD: memory ``[start, end)``. The core promises its first ``promised`` bytes at ``offset`` and has
    ``dumped`` of them."""

    start: int
    end: int
    flags: str
    offset: int
    promised: int
    dumped: int


class Piece(NamedTuple):
    """A mapping with where its bytes begin in the core, and how many of them the core's headers promise."""

    range: AddressRange
    offset: int
    promised: int


_FLAGS = [
    ("r" if flags & PF_R else "-") + ("w" if flags & PF_W else "-") + ("x" if flags & PF_X else "-")
    for flags in range(8)
]


def loads(segments: Iterable[Segment], core_size: int) -> tuple[list[Load], int]:
    """PT_LOADs by address, without overlaps (of two, the lower keeps its bytes), and how many had to be cut or
    dropped."""
    found: list[Load] = []
    spoiled = 0
    at = 0
    for segment in sorted(segments, key=lambda s: s.vaddr):
        start, end = max(segment.vaddr, at), segment.vaddr + segment.memsz
        if end > TOP or start != segment.vaddr:
            spoiled += 1
            end = min(end, TOP)
        if start >= end:
            continue
        skip = start - segment.vaddr
        promised = max(0, min(segment.filesz, segment.memsz) - skip)
        offset = segment.offset + skip
        dumped = max(0, min(promised, core_size - offset))
        found.append(Load(start, end, _FLAGS[segment.flags & 7], offset, promised, dumped))
        at = end
    return found, spoiled


def join(all_loads: Sequence[Load], files: Sequence[FileMapping]) -> list[Piece]:
    """The mappings by address. Both lists are sorted; a load is split where a file begins or ends. What only the list
    of files knows (gdb's gcore leaves some mappings out of the program headers) becomes a read-only mapping of which
    the dump has no byte."""
    pieces: list[Piece] = []
    files = _without_overlaps(files)
    index = 0
    done = 0  # everything below is in ``pieces``
    for load in all_loads:
        at = load.start
        while at < load.end:
            while index < len(files) and files[index].end <= at:
                _only_file(pieces, files[index], done, at)
                index += 1
            here = files[index] if index < len(files) else None
            if here is not None and here.start < at:
                _only_file(pieces, here, done, at)
            if here is not None and here.start <= at:
                end, path, offset = min(load.end, here.end), here.path, here.offset + at - here.start
            else:
                end = load.end if here is None else min(load.end, here.start)
                path, offset = None, 0
            skip = at - load.start
            dumped = max(0, min(load.dumped - skip, end - at))
            promised = max(0, min(load.promised - skip, end - at))
            pieces.append(Piece(AddressRange(at, end, load.flags, path, offset, dumped), load.offset + skip, promised))
            at = done = end
    for file in files[index:]:
        _only_file(pieces, file, done, file.end)
    return pieces


def _only_file(pieces: list[Piece], file: FileMapping, done: int, until: int) -> None:
    start, end = max(file.start, done), min(file.end, until)
    if start < end:
        pieces.append(Piece(AddressRange(start, end, "r--", file.path, file.offset + start - file.start), 0, 0))


def _without_overlaps(files: Sequence[FileMapping]) -> list[FileMapping]:
    kept: list[FileMapping] = []
    for file in files:
        at = kept[-1].end if kept else 0
        if file.start >= at:
            kept.append(file)
        elif file.end > at:
            kept.append(FileMapping(at, file.end, file.offset + at - file.start, file.path))
    return kept
