"""The malloc of bump.c: blocks one behind the other in regions, each behind a header of 16 bytes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Optional

from dmods._engine import Slots
from dmods.allocators.protocol import Allocator, Found, Heap
from dmods.allocators.vocabulary import Problem
from dmods.base.dataclass import dataclass, field
from dmods.base.ranges import Ranges
from dmods.base.words import Words
from dmods.modules.data import module_data
from dmods.process.mappings import mapping_at
from dmods.target import Target

NAME = "bump"
_REGION = struct.Struct("<4Q")  # magic, next, top, end
_HEADER = struct.Struct("<IIQ")  # magic, state, size
_REGION_MAGIC, _BLOCK_MAGIC = 0x31504D5542, 0x4B4C4221
_LIVE, _FREED = 1, 2
_MOST_REGIONS = 1 << 16


class Region(NamedTuple):
    """A region. Its blocks lie in [start + 32, top)."""

    start: int
    top: int
    end: int


@dataclass
class BumpHeap(Heap):
    """All regions. ``starts`` are the addresses of blocks."""

    regions: list[Region] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def where(self, address: int) -> Optional[str]:
        """Return which header the address is in, or that nothing was allocated there yet."""
        region = next((one for one in self.regions if one.start <= address < one.end), None)
        if region is None or address < region.start + _REGION.size:
            return "in the record of a region of bump"
        if address >= region.top:
            return "in the part of a region of bump that was never allocated"
        after = bisect_right(self.starts, address)
        return f"in the header of the block {self.starts[after]:#x}" if after < len(self.starts) else None

    def holder(self, address: int) -> Optional[str]:
        """Return the list that has all freed blocks."""
        return "on the list of freed blocks"

    def statistics(self) -> list[tuple[str, int]]:
        """Return how many regions there are, and what their headers take."""
        return [("regions", len(self.regions)), ("bytes of headers", _HEADER.size * len(self.starts))]


def find(target: Target, taken: Ranges) -> Found:
    """Return the heap. It begins with a variable that points to a region, whose first words prove it."""
    words = Words(target.image(), target.arch.word)
    if words.size != 8:
        return Found()
    for start, end in taken.without(module_data(target)):
        for index, value in enumerate(words.many(start, (end - start) // words.size) or ()):
            regions = list(_regions(target, value)) if value and value % 4096 == 0 else []
            if regions:
                return _made(target, regions, start + index * words.size)
    return Found()


def _regions(target: Target, at: int) -> Iterator[Region]:
    """Yield the regions of a list. Each lies in anonymous memory, as far as its end."""
    seen: set[int] = set()
    while at and at not in seen and len(seen) < _MOST_REGIONS:
        seen.add(at)
        data, mapping = target.image().read(at, _REGION.size), mapping_at(target, at)
        if len(data) < _REGION.size or mapping is None or not mapping.anonymous:
            return
        magic, following, top, end = _REGION.unpack(data)
        if magic != _REGION_MAGIC or not at + _REGION.size <= top <= end <= mapping.end:
            return
        yield Region(at, top, end)
        at = following


def _made(target: Target, regions: list[Region], variable: int) -> Found:
    spans: list[tuple[int, int, int, bytes]] = []
    problems: list[Problem] = []
    for region in regions:
        at = region.start + _REGION.size
        while at < region.top:
            data = target.image().read(at, _HEADER.size)
            magic, state, size = _HEADER.unpack(data) if len(data) == _HEADER.size else (0, 0, 0)
            sound = magic == _BLOCK_MAGIC and state in (_LIVE, _FREED) and size % 16 == 0
            if not sound or not 0 < size <= region.top - at - _HEADER.size:
                problems.append(Problem(at, f"the header at {at:#x} is none: what lies behind it is not known"))
                break
            spans.append((at + _HEADER.size, size, 1, b"\1" if state == _FREED else b"\0"))
            at += _HEADER.size + size
    if not spans:
        return Found(refusals=[f"{NAME} is in the process, but no header of a block in its regions is sound"])
    spans.sort()
    heap = BumpHeap(NAME, [(region.start, region.end) for region in regions], Slots(spans))
    heap.regions, heap.starts, heap.problems = regions, [span[0] for span in spans], problems
    heap.home, heap.leaves_links = variable, True
    if problems:
        heap.notes.append(f"{NAME}: a header is overwritten in {len(problems)} regions: `heapcheck` tells where")
    return Found([heap])


ALLOCATOR = Allocator(NAME, find, advice="bump never gives memory back.")
