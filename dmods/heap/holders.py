"""Who points to a block, and which of them keep it alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from dmods.base.dataclass import dataclass
from dmods.base.named_tuple import NamedTuple
from dmods.base.ranges import Ranges
from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE, OWN, Block
from dmods.heap.heap import ProcessHeap
from dmods.heap.locate import AddressFinder
from dmods.heap.roots.signal_frames import integers_in_signal_frames
from dmods.process.vectors import lanes

MOST_WORDS = 1 << 16  # words of memory that are ranked: a parent of many children has many pointers back
_STATES = {LIVE: "live", FREE: "free", DIRECT: "leaked", INDIRECT: "leaked", OWN: "own"}


@dataclass(frozen=True)
class Holder:
    """A word of memory, or a register, that points into a block.

    ``address`` is where the word lies; None for a register. ``offset`` is how far into the block it points. ``state``
    is "root", "live", "leaked", "free", "own" (the allocator's own block) or "dead" (nothing reads this memory as a
    pointer). ``block`` is the block that the word lies in. ``keeps``: whether a path from a root leads to the word and
    avoids the block that it points to. For a leaked block, the path begins at a direct leak. None where nothing can be
    kept alive: the block is free, or there is no block.
    """

    address: Optional[int]
    offset: int
    state: str
    keeps: Optional[bool]
    block: Optional[Block] = None
    register: Optional[str] = None
    tid: Optional[int] = None

    @property
    def returns(self) -> bool:
        """Return whether only the block itself leads to this pointer: one of the block's children points back."""
        return self.keeps is False and self.state in ("live", "leaked")

    @property
    def unread(self) -> bool:
        """Return whether it lies in a block that is in use, and nothing reads it as a pointer: see ``state``."""
        return self.state == "dead" and self.block is not None and self.block.state == LIVE


class Holders(NamedTuple):
    """The holders, those that keep the block alive first. ``complete`` is false where more words point to it."""

    all: list[Holder]
    complete: bool

    @property
    def words(self) -> int:
        """Return how many holders are words in memory."""
        return sum(holder.address is not None for holder in self.all)


def find_holders(finder: AddressFinder, block: Optional[Block], address: int) -> Holders:
    """Return who points into ``block``, or to exactly ``address`` if it lies in no block.

    All of memory is searched once. If a live block is among the holders, the heap is marked once more with ``block``
    closed.
    """
    heap = finder.heap
    low, high = (block.address, block.end) if block is not None else (address, address + 1)
    found = heap.index.pointers([(low, high)], MOST_WORDS)[0]
    outside = [at for at in found if block is None or not low <= at < high]
    blocks = [heap.block_at(at) for at in outside]
    reached = _reached(heap, block, blocks)
    roots, dead = Ranges(heap.marks.ranges), Ranges(heap.roots.dead)
    holders = list(_registers(finder, low, high, block))
    for at, value in heap.marks.code_words:
        if low <= value < high:
            holders.append(Holder(at, value - low, "root", _keeps(block, "root", False), None))
    for at, holding in zip(outside, blocks):
        state = _state(at, holding, roots, dead)
        keeps = _keeps(block, state, holding is not None and holding.address in reached)
        holders.append(Holder(at, (heap.words.at(at) or low) - low, state, keeps, holding))
    return Holders(sorted(holders, key=_rank), len(found) < MOST_WORDS)


def _registers(finder: AddressFinder, low: int, high: int, block: Optional[Block]) -> Iterator[Holder]:
    for thread in finder.target.threads():
        for name, value in thread.registers.items():
            if low <= value < high:
                keeps = _keeps(block, "root", False)
                yield Holder(None, value - low, "root", keeps, register=name, tid=thread.tid)
        for lane in lanes(thread.vectors or {}, finder.target.arch.word):
            if low <= lane.value < high:
                keeps = _keeps(block, "root", False)
                yield Holder(None, lane.value - low, "root", keeps, register=lane.name, tid=thread.tid)
    for tid, lane in integers_in_signal_frames(finder.target):
        if low <= lane.value < high:
            keeps, name = _keeps(block, "root", False), f"{lane.name} (saved in a signal frame)"
            yield Holder(None, lane.value - low, "root", keeps, register=name, tid=tid)


def _reached(heap: ProcessHeap, block: Optional[Block], holding: Sequence[Optional[Block]]) -> set[int]:
    """Return the addresses of the holding blocks that a path leads to which avoids ``block``."""
    if block is None or block.state in (FREE, OWN):
        return set()
    states = (LIVE,) if block.state == LIVE else (DIRECT, INDIRECT)
    asked = sorted({each.address for each in holding if each is not None and each.state in states})
    if not asked:
        return set()
    return {at for at, is_reached in zip(asked, heap.marks.reached_without(block, asked)) if is_reached}


def _state(at: int, holding: Optional[Block], roots: Ranges, dead: Ranges) -> str:
    if at in dead:
        return "dead"
    if holding is not None:
        return _STATES[holding.state]
    return "root" if at in roots else "dead"


def _keeps(block: Optional[Block], state: str, reached: bool) -> Optional[bool]:
    if block is None or block.state in (FREE, OWN):
        return None
    if block.state == LIVE:
        return state == "root" or (state == "live" and reached)
    return state == "leaked" and reached


_ORDER = ("root", "live", "leaked")


def _rank(holder: Holder) -> tuple[bool, int, int]:
    order = _ORDER.index(holder.state) if holder.state in _ORDER else len(_ORDER)
    return not holder.keeps, order, holder.address if holder.address is not None else -1
