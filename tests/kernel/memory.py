"""Guests' page arrays for tests. They are opened once; tests change some bytes."""

from __future__ import annotations

import struct
from array import array
from functools import cache
from pathlib import Path
from typing import Any, Optional, Protocol

import drgn
import pytest

from dmods._engine import Memmap, Physical
from drgnext.kernel.dump import image as memory
from drgnext.kernel.dump.target import Kernel
from drgnext.kernel.pages.memmap import PageArray
from fixtures import kernel
from fixtures.kernel import packages

RELEASES = packages.TESTED
#: For tests whose guests take minutes: without another machine, which QEMU emulates slowly, and without a kernel
#: between two others.
_SELDOM = pytest.mark.seldom("each kernel's guest takes a minute or two")
FEWER = [pytest.param(name, marks=_SELDOM) if name in ("6.1-arm64", "6.12") else name for name in RELEASES]


class Dead(Protocol):
    """A guest that died, of whichever kind."""

    @property
    def vmcore(self) -> Path: ...

    @property
    def vmlinux(self) -> Path: ...

    @property
    def modules(self) -> list[Path]: ...


def open_kernel(guest: Dead, vmcore: Optional[Path] = None) -> Kernel:
    prog = drgn.Program()
    prog.set_core_dump(vmcore or guest.vmcore)
    prog.load_debug_info([guest.vmlinux, *guest.modules])
    return Kernel(prog)


@cache
def opened(release: str) -> tuple[kernel.Guest, PageArray]:
    guest = kernel.guest(release)
    return guest, PageArray(open_kernel(guest))


def words(path: Path) -> array[int]:
    found = array("Q")
    found.frombytes(path.read_bytes())
    return found


class Changed:
    """A guest's page array with bytes replaced or missing, by physical address, as in another dump."""

    def __init__(self, release: str) -> None:
        self.guest, self.array = opened(release)
        physical, why = memory.native(str(self.guest.vmcore))
        assert physical is not None, why
        self._physical = physical
        self._words: dict[int, bytes] = {}
        self.missing: set[int] = set()  # page frames

    def page(self, pfn: int) -> int:
        """Return the physical address of the page's struct page."""
        layout = self.array.layout
        found = self.array._memmap.translate(layout["base"] + pfn * layout["size"])
        assert found is not None
        return found

    def get(self, address: int) -> int:
        return int(struct.unpack("<Q", self.read(address, 8))[0])

    def put(self, address: int, value: int) -> None:
        assert address % 8 == 0
        self._words[address] = struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)

    def read(self, address: int, size: int) -> bytes:
        for frame in range(address >> 12, (address + size - 1 >> 12) + 1):
            if frame in self.missing:
                size = max(0, (frame << 12) - address)
                break
        data = bytearray(self._physical.read(address, size))
        for at, word in self._words.items():
            if address <= at and at + 8 <= address + len(data):
                data[at - address : at - address + 8] = word
        return bytes(data)

    def classify(self) -> tuple[Any, bytes]:
        """Return the engine's counts, and a byte for each page of ``array.ranges``."""
        array = self.array
        memmap = Memmap(Physical.through(self.read), array._tables, array.layout)
        counts, numbers = memmap.classify(list(array.ranges), 10_000, True)
        assert numbers is not None
        return counts, numbers
