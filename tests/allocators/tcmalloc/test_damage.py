"""Damaged structures of tcmalloc: they are problems of heapcheck, and never an error."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import judge, tcmallocs
from fixtures.heaps import others
from tests.allocators.tcmalloc.test_truth import walked
from tests.auditkit import answer, text

pytestmark = pytest.mark.thorough("cores of their own")

DAMAGES, CUTS = 100, 20


def test_a_block_that_was_freed_twice() -> None:
    made = tcmallocs.take("tcstats", mode="double")
    target = judge.open_core(made)
    one = walked(find_heap(target))
    (problem,) = one.problems
    assert "is free already" in problem.text
    report = answer(target, "heapcheck", "--fail-on-damage")
    assert report["status"] == 3
    assert any("1 damaged free list of tcmalloc" in note for note in report["notes"])
    assert "is free already" in text(target, "heapcheck")


def test_a_link_that_was_overwritten() -> None:
    made = tcmallocs.take("tcstats", mode="overwritten")
    target = judge.open_core(made)
    (problem,) = walked(find_heap(target)).problems
    assert problem.address == made.truth.facts["damaged"]
    assert "0x4141414141414141" in problem.text
    assert answer(target, "heapcheck", "--fail-on-damage")["status"] == 3


def segments(core: Path) -> list[tuple[int, int, int]]:
    """Return (address, bytes in the file, offset) of each PT_LOAD."""
    data = core.read_bytes()
    (first,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    out = []
    for number in range(count):
        kind, _flags, offset, address, _physical, length = struct.unpack_from("<IIQQQQ", data, first + number * size)
        if kind == 1 and length:
            out.append((address, length, offset))
    return out


def structures(made_core: Path) -> list[tuple[int, int]]:
    """Return where the core file has tcmalloc's own words: (offset, bytes)."""
    heap = find_heap(CoreFile(str(made_core)))
    inner = walked(heap).inner
    assert inner is not None
    base, stride, classes = inner.central
    wanted = [(base, base + stride * classes)]
    wanted += [(address, address + 4200) for address, _count, _bytes in inner.caches]
    image = heap.target.image()
    for start, end in inner.owned[:1]:  # records and leaves: the words that are not zero
        words = memoryview(image.read(start, end - start)).cast("Q")
        wanted += [(start + 8 * at, start + 8 * at + 8) for at, word in enumerate(words) if word]
    out, loaded = [], segments(made_core)  # once: the core is read whole
    for start, end in wanted:
        for address, length, offset in loaded:
            if address <= start and end <= address + length:
                out.append((start - address + offset, end - start))
    return out


def answers(core: Path) -> None:
    """Run the commands that read most of the heap. None may raise."""
    target = CoreFile(str(core))
    heap = find_heap(target)
    for name in ("heapcheck", "malloc_stats"):
        assert answer(target, name)["command"] == name
    for one in others(heap):
        for start, end in one.owned[:2]:
            one.where((start + end) // 2)
            one.holder(start)


def test_random_damage(tmp_path: Path) -> None:
    core = tmp_path / "core"
    shutil.copy(tcmallocs.take("shapes").core, core)
    places = structures(core)
    assert len(places) > 500
    rng = random.Random(1603)
    words = [0, 1, 8, (1 << 64) - 1, 0x4141414141414141, 1 << 47, 1 << 63]
    for _number in range(DAMAGES):
        kept = []
        with open(core, "r+b") as stream:
            for offset, size in rng.choices(places, k=rng.choice((1, 1, 3, 20))):
                at = offset + rng.randrange(size) // 8 * 8
                stream.seek(at)
                old = stream.read(8)
                near = struct.unpack("<Q", old)[0] ^ 1 << rng.randrange(64)
                stream.seek(at)
                stream.write(struct.pack("<Q", rng.choice([near, near, rng.choice(words)])))
                kept.append((at, old))
        answers(core)
        with open(core, "r+b") as stream:
            for at, old in reversed(kept):
                stream.seek(at)
                stream.write(old)
    assert walked(find_heap(CoreFile(str(core)))).problems == []


def test_truncated_cores(tmp_path: Path) -> None:
    core = tmp_path / "core"
    whole = tcmallocs.take("shapes").core
    size, rng = whole.stat().st_size, random.Random(1604)
    shutil.copy(whole, core)
    for cut in sorted((rng.randrange(4096, size) for _number in range(CUTS)), reverse=True):
        with open(core, "r+b") as stream:
            stream.truncate(cut)
        answers(core)
