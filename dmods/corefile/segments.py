"""The mappings of the process: the PT_LOADs of the core, joined with its list of mapped files."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Optional

from dmods.base.named_tuple import NamedTuple
from dmods.base.rows import Rows
from dmods.modules.elf import PF_R, PF_W, PF_X, PT_LOAD, TOP, Segment
from dmods.modules.mapped_file import FileMapping
from dmods.target import AddressRange, address_ranges


class Load(NamedTuple):
    """A PT_LOAD: memory ``[start, end)``. Its first ``promised`` bytes should be at ``offset``; ``dumped`` of them
    exist."""

    start: int
    end: int
    flags: str
    offset: int
    promised: int
    dumped: int


class Piece(NamedTuple):
    """A mapping, the offset of its bytes in the core, and how many of them the headers promise."""

    range: AddressRange
    offset: int
    promised: int


class Pieces:
    """All pieces, sorted by address. ``ranges`` are their mappings."""

    def __init__(self) -> None:
        self.ranges = address_ranges()
        self._offsets, self._promised = array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self.ranges)

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, self.ranges, self._offsets, self._promised)

    def append(self, mapping: tuple[int, int, str, Optional[str], int, int], offset: int, promised: int) -> None:
        """Add a piece. ``mapping`` has the fields of an AddressRange."""
        self.ranges.append(mapping)
        self._offsets.append(offset)
        self._promised.append(promised)

    def mend_flags(self, flags: Mapping[int, str]) -> None:
        """Replace the flags of mappings, given by their start."""
        starts, _ends, all_flags, *_ = self.ranges.columns
        for start, mended in flags.items():
            all_flags[bisect_left(starts, start)] = mended


_LAST = (1 << 64) - 1
_MOST_POINTERS, _MOST_TOPMOST = 32, 4
_FLAGS = [
    ("r" if flags & PF_R else "-") + ("w" if flags & PF_W else "-") + ("x" if flags & PF_X else "-")
    for flags in range(8)
]


def loads(segments: Sequence[Segment], core_size: int) -> tuple[Rows[Load], int]:
    """Return the PT_LOADs by address, and how many of them were cut or dropped.

    Where two overlap, the lower one keeps its bytes.
    """
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


def likely_stacks(all_loads: Rows[Load], pointers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end of the dumped bytes) of memory that may be the first thread's stack.

    That is memory that a stack pointer leads to, and then the topmost memory that may be written: Linux maps the first
    stack above all else, and a thread may run on a stack of its own (Go, signal handlers).
    """
    starts = all_loads.columns[0]
    places = dict.fromkeys(bisect_right(starts, pointer) - 1 for pointer in islice(pointers, _MOST_POINTERS))
    top = (index for index in range(len(all_loads) - 1, -1, -1) if "w" in all_loads[index].flags)
    for index in dict.fromkeys([*places, *islice(top, _MOST_TOPMOST)]):
        if index >= 0 and all_loads[index].dumped:
            yield all_loads[index].start, all_loads[index].start + all_loads[index].dumped


def _by_address(segments: Sequence[Segment]) -> Iterator[Segment]:
    """Return the segments by address. The kernel writes them in this order: then nothing is copied."""
    starts = array("Q", (segment.vaddr for segment in segments))
    if all(map(int.__le__, starts, starts[1:])):
        return iter(segments)
    return (segments[place] for place in sorted(range(len(starts)), key=starts.__getitem__))


def join(all_loads: Iterable[Load], files: Iterable[FileMapping]) -> Pieces:
    """Return the mappings by address. Both lists are sorted by address.

    A load is split where a file begins or ends. gdb's gcore leaves some mappings out of the program headers. They are
    only in the list of files, and become read-only mappings without bytes in the dump.
    """
    pieces = Pieces()
    rest = _without_overlaps(files)
    here = next(rest, None)
    done = 0  # all addresses below are in ``pieces``
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
