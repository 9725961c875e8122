"""Unreachable blocks of a heap that a garbage collector frees. They wait for the collector, and are no leaks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from dmods import _engine
from dmods.allocators.protocol import Heap
from dmods.base.dataclass import dataclass, field
from dmods.base.sizes import human_size
from dmods.heap.block import DIRECT, INDIRECT

_BATCH = 65536


@dataclass(frozen=True)
class Garbage:
    """The unreachable blocks of one collected heap. ``addresses`` are sorted."""

    name: str
    bytes: int
    addresses: array[int] = field(repr=False)

    def __contains__(self, address: int) -> bool:
        """Return whether the block that begins there is garbage."""
        index = bisect_left(self.addresses, address)
        return index < len(self.addresses) and self.addresses[index] == address

    @property
    def note(self) -> str:
        """Return what findleaks says of them."""
        count = len(self.addresses)
        blocks = "1 block" if count == 1 else f"{count} blocks"
        return (
            f"{self.bytes} bytes ({human_size(self.bytes)}) of {self.name} garbage in {blocks} are not yet collected: "
            f"nothing points to them, and {self.name}'s collector will free them; they are no leaks"
        )


def find_garbage(marks: _engine.Marks, heaps: Sequence[Heap]) -> list[Garbage]:
    """Return the unreachable blocks of the heaps that have a collector.

    A block that the collector itself found dead is one of them, whatever word looks like a pointer to it.
    """
    found = {one.arena: (one.name, array("Q"), [0]) for one in heaps if one.collected}
    if found:
        for address, size, arena in _leaked(marks):
            if arena in found:
                _name, addresses, total = found[arena]
                addresses.append(address)
                total[0] += size
        for one in heaps:
            if one.collected:
                _add(found[one.arena][1], found[one.arena][2], one.condemned())
    return [Garbage(name, total[0], addresses) for name, addresses, total in found.values() if addresses]


def _add(addresses: array[int], total: list[int], blocks: Iterable[tuple[int, int]]) -> None:
    """Add blocks to those that are known, by address."""
    more = array("Q")
    for address, size in blocks:
        index = bisect_left(addresses, address)
        if index == len(addresses) or addresses[index] != address:
            more.append(address)
            total[0] += size
    if more:
        addresses[:] = array("Q", merge(addresses, more))


def _leaked(marks: _engine.Marks) -> Iterator[tuple[int, int, int]]:
    start = 0
    while True:
        batch = marks.blocks([DIRECT, INDIRECT], start, _BATCH)
        yield from ((row.address, row.size, row.arena) for row in batch)
        if len(batch) < _BATCH:
            return
        start = batch[-1].address + 1
