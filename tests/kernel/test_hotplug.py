"""RAM that drivers add below their device's resource, and memory blocks that are offline."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, Optional

import pytest

from drgnext.kernel.pages.frame_ranges import Range, memory_frames, without_frames
from fixtures import kernel
from tests.kernel.test_memstat_truth import BATCHES, BITS, open_guest, possible, read


class _Number(int):
    def value_(self) -> int:
        return self


class _Text(bytes):
    def string_(self) -> bytes:
        return self


class _Resource:
    """A struct resource as drgn shows it. Each ``below`` becomes the sibling of the one before."""

    def __init__(self, start: int, end: int, name: str, *below: _Resource) -> None:
        self.start, self.end, self.name = _Number(start), _Number(end), _Text(name.encode())
        self.child: Optional[_Resource] = below[0] if below else None
        self.sibling: Optional[_Resource] = None
        for one, following in zip(below, below[1:]):
            one.sibling = following

    def read_(self) -> _Resource:
        return self


class _Nothing:
    def __bool__(self) -> bool:
        return False

    def read_(self) -> _Nothing:
        return self


def _program(*below: _Resource) -> Any:
    def end(resource: Any) -> None:
        for name in ("child", "sibling"):
            following = getattr(resource, name)
            if following is None:
                setattr(resource, name, _Nothing())
            else:
                end(following)

    root = _Resource(0, (1 << 52) - 1, "PCI mem", *below)
    end(root)
    return {"iomem_resource": root, "PAGE_SHIFT": _Number(12)}


def _pages(first: int, last: int, name: str, *below: _Resource) -> _Resource:
    return _Resource(first << 12, (last << 12) - 1, name, *below)


def test_ram_of_drivers_is_below_their_devices() -> None:
    """/proc/iomem shows such a tree with virtio_mem, CXL and persistent memory (Documentation/driver-api/cxl)."""
    prog = _program(
        _pages(16, 1000, "System RAM", _pages(20, 30, "Kernel code")),
        _pages(1000, 5000, "virtio0", _pages(2000, 3000, "System RAM (virtio_mem)")),
        _pages(
            6000,
            9000,
            "CXL Window 0",
            _pages(6000, 8000, "region0", _pages(6000, 8000, "dax0.0", _pages(6500, 8000, "System RAM (kmem)"))),
        ),
        _pages(9000, 9500, "PCI Bus 0000:00"),
    )
    assert memory_frames(prog) == [(16, 1000), (2000, 3000), (6500, 8000)]


def test_a_damaged_tree_of_resources_ends() -> None:
    outside = _pages(100, 200, "device", _pages(150, 300, "System RAM (kmem)"))
    back = _pages(100, 200, "again")
    assert memory_frames(_program(_pages(10, 20, "System RAM"), outside, back)) == [(10, 20)]
    loop = _pages(10, 20, "device", _pages(12, 14, "System RAM (kmem)"))
    prog = _program(loop)
    assert loop.child is not None
    loop.child.sibling = loop.child
    assert memory_frames(prog) == [(12, 14)]
    loop.child = loop
    assert memory_frames(prog) == []


def test_frames_without_others() -> None:
    chance = random.Random(1)

    def some() -> list[Range]:
        ends = sorted(chance.sample(range(30), 2 * chance.randint(0, 4)))
        return list(zip(ends[::2], ends[1::2]))

    for _ in range(500):
        ones, others = some(), some()
        left = {n for start, end in ones for n in range(start, end)} - {n for s, e in others for n in range(s, e)}
        found = without_frames(ones, others)
        assert [n for start, end in found for n in range(start, end)] == sorted(left)


@pytest.mark.thorough("it needs a guest with more memory")
@pytest.mark.parametrize("release", ["6.1", "6.12", "5.10"])
def test_a_guest_with_ram_of_a_driver(release: str) -> None:
    guest = kernel.guest(release, size="640M", hotplug=256)
    iomem = (guest.oracle / "iomem").read_text()
    ranges = re.findall(r"^ *([0-9a-f]+)-([0-9a-f]+) : System RAM", iomem, re.M)
    assert re.search(r"^  .*: System RAM \(dmods\)", iomem, re.M)
    ram = sum((int(end, 16) + 1 >> 12) - (int(start, 16) + 4095 >> 12) for start, end in ranges)
    pages = open_guest(guest, guest.vmcore)
    classified = pages.classify()
    offline = guest.truth["offline_pages"]
    present = re.findall(r"^\s+present\s+(\d+)", (guest.oracle / "zoneinfo").read_text(), re.M)
    assert sum(map(int, present)) == ram - offline == classified.counted.total
    assert [note for note in pages.notes if "offline" in note] == [
        f"{offline} pages of RAM are in memory blocks that are offline: they are not counted"
    ]
    flags = read(guest.oracle / "panic.flags", "Q")
    references = read(guest.oracle / "panic.references", "I")
    wrong: Counter[tuple[str, int]] = Counter()
    for frame, kind in classified:
        assert not flags[frame] >> BITS["nopage"] & 1
        if kind not in possible(flags[frame], references[frame], release):
            wrong[kind, flags[frame]] += 1
    assert sum(wrong.values()) <= BATCHES, wrong  # pages on their way to the LRU list, as in test_memstat_truth
