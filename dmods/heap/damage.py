"""Damaged chunks of all heaps of a process, and the bytes there."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.allocators.vocabulary import Damage
from dmods.base.hexdump import ROW, HexRow, hex_rows
from dmods.heap.heap import ProcessHeap

__all__ = ["Damage", "damages", "hexdump"]


def damages(heap: ProcessHeap) -> Iterator[Damage]:
    """Yield the damaged chunks of each heap."""
    for one in heap.heaps:
        yield from one.damages()


def hexdump(heap: ProcessHeap, damage: Damage, size: int = 64) -> list[HexRow]:
    """Return (address, hex, text) for the row before the bad header, and ``size`` bytes from the header on."""
    return list(hex_rows(heap.words.image.read, damage.chunk - ROW, size + ROW))
