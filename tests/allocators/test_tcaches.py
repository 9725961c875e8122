"""Blocks that are taken for a ``tcache_perthread_struct``, in descriptions of blocks made by hand."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Optional

import pytest

from dmods.allocators.glibc.caches import Candidates, find_tcaches
from dmods.allocators.numbers import NO_ARENA

TCACHE, SMALL = 0x5000_0010, 0x6000_0000
SIZES = {TCACHE: 4072, **{SMALL + 0x1000 * n: 24 + 16 * n for n in range(8)}}  # usable: of bins 0 to 7


class Row(NamedTuple):
    """A row of a block with the fields that these tests read."""

    address: int
    size: int
    state: int
    arena: int


class Memory:
    """Words and Heap in one object: the tcache's bytes, and live blocks with their own mappings."""

    size = 8

    def __init__(self, counts: dict[int, int], entries: dict[int, int]) -> None:
        self.image = self
        data = [struct.pack("<64H", *(counts.get(n, 0) for n in range(64)))]
        data += [struct.pack("<64Q", *(entries.get(n, 0) for n in range(64)))]
        self.bytes = b"".join(data).ljust(4072, b"\0")

    def read(self, address: int, size: int) -> bytes:
        return self.bytes[address - TCACHE :][:size]

    def find(self, address: int) -> Optional[Row]:
        for start, size in SIZES.items():
            if start <= address < start + size:
                return Row(start, size, 0, NO_ARENA)
        return None


def of_bin(n: int) -> int:
    return SMALL + 0x1000 * n


@pytest.mark.parametrize(
    ("counts", "entries", "is_tcache"),
    [
        ({0: 7, 2: 1}, {0: of_bin(0), 2: of_bin(2)}, True),
        # A link was overwritten; the others and their counters are right.
        ({0: 7, 1: 2, 2: 1}, {0: of_bin(0), 1: 0x41414141, 2: of_bin(2)}, True),
        # A block of the program that points to two others. One of them would fit its bin.
        ({}, {0: of_bin(0), 5: of_bin(3)}, False),
        ({}, {0: of_bin(0)}, False),
        ({0: 1, 5: 1}, {0: of_bin(0), 3: of_bin(5), 5: of_bin(3)}, False),
    ],
)
def test_more_must_be_right_than_wrong(counts: dict[int, int], entries: dict[int, int], is_tcache: bool) -> None:
    memory: Any = Memory(counts, entries)
    found = find_tcaches(memory, memory, Candidates(alike=[], pointers=[TCACHE], first=[]))
    assert [address for address, _shape in found] == ([TCACHE] if is_tcache else [])
