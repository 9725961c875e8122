"""A core's PT_LOADs joined with its list of mapped files: the mappings of the process, and where the dump has their
bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from dmods.corenotes import FileMapping
from dmods.elf import PF_R, PF_W, PF_X, PT_LOAD, TOP, Segment
from dmods.rows import Rows
from dmods.target import AddressRange, address_ranges


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


class Pieces:
    """Pieces by address. ``ranges`` are their mappings."""

    def __init__(self) -> None:
        self.ranges = address_ranges()
        self._offsets, self._promised = array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self.ranges)

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, self.ranges, self._offsets, self._promised)

    def append(self, mapping: tuple[int, int, str, Optional[str], int, int], offset: int, promised: int) -> None:
        """``mapping``: the fields of an AddressRange."""
        self.ranges.append(mapping)
        self._offsets.append(offset)
        self._promised.append(promised)

    def mend_flags(self, flags: Mapping[int, str]) -> None:
        """By the mappings' starts."""
        starts, _ends, all_flags, *_ = self.ranges.columns
        for start, mended in flags.items():
            all_flags[bisect_left(starts, start)] = mended


_LAST = (1 << 64) - 1
_FLAGS = [
    ("r" if flags & PF_R else "-") + ("w" if flags & PF_W else "-") + ("x" if flags & PF_X else "-")
    for flags in range(8)
]


def loads(segments: Sequence[Segment], core_size: int) -> tuple[Rows[Load], int]:
    """PT_LOADs by address, without overlaps (of two, the lower keeps its bytes), and how many had to be cut or
    dropped."""
    found = Rows(Load, "QQOQQQ")
    spoiled = 0
    at = 0
    for segment in _by_address(segments):
        if segment.type != PT_LOAD:
            continue
        start, end = max(segment.vaddr, at), segment.vaddr + segment.memsz
        if end > TOP or start != segment.vaddr:
            spoiled += 1
            end = min(end, TOP)
        if start >= end:
            continue
        skip = start - segment.vaddr
        promised = max(0, min(segment.filesz, segment.memsz) - skip)
        offset = min(segment.offset + skip, _LAST)
        dumped = max(0, min(promised, core_size - offset))
        found.append((start, end, _FLAGS[segment.flags & 7], offset, promised, dumped))
        at = end
    return found, spoiled


def _by_address(segments: Sequence[Segment]) -> Iterator[Segment]:
    """The kernel writes them so; then nothing is copied."""
    starts = array("Q", (segment.vaddr for segment in segments))
    if all(map(int.__le__, starts, starts[1:])):
        return iter(segments)
    return (segments[place] for place in sorted(range(len(starts)), key=starts.__getitem__))


def join(all_loads: Iterable[Load], files: Iterable[FileMapping]) -> Pieces:
    """The mappings by address. Both lists are sorted; a load is split where a file begins or ends. What only the list
    of files knows (gdb's gcore leaves some mappings out of the program headers) becomes a read-only mapping of which
    the dump has no byte."""
    pieces = Pieces()
    rest = _without_overlaps(files)
    here = next(rest, None)
    done = 0  # everything below is in ``pieces``
    for load in all_loads:
        at = load.start
        while at < load.end:
            while here is not None and here.end <= at:
                _only_file(pieces, here, done, at)
                here = next(rest, None)
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
            pieces.append((at, end, load.flags, path, offset, dumped), min(load.offset + skip, _LAST), promised)
            at = done = end
    while here is not None:
        _only_file(pieces, here, done, here.end)
        here = next(rest, None)
    return pieces


def _only_file(pieces: Pieces, file: FileMapping, done: int, until: int) -> None:
    start, end = max(file.start, done), min(file.end, until)
    if start < end:
        pieces.append((start, end, "r--", file.path, file.offset + start - file.start, 0), 0, 0)


def _without_overlaps(files: Iterable[FileMapping]) -> Iterator[FileMapping]:
    at = 0
    for file in files:
        if file.end > at:
            start = max(file.start, at)
            yield FileMapping(start, file.end, file.offset + start - file.start, file.path)
            at = file.end
