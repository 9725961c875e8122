"""Segments that were freed and stay mapped, in their arena or in mimalloc's cache: they are no damage.

Their spans have the block size 1, and the cookie stands. Damage of such a segment, and of one in use, is found.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import answers
from fixtures import mimallocs as kit
from tests.allocators.mimalloc.test_damage import offset, place
from tests.allocators.mimalloc.test_inside import compiled
from tests.corekit import compile_c, kernel_core
from tests.quick import only

HERE = Path(__file__).parent
HIDDEN = 0x5A5A5A5A5A5A5A5A
#: How the sources that the crate brings are built.
BUILDS = {
    "v2": (),
    "v2, secure": ("-DMI_SECURE=4",),
    "v2, padded": ("-DMI_PADDING=1", "-DMI_ENCODE_FREELIST=1"),
    "v2, debug": ("-UNDEBUG", "-DMI_DEBUG=2"),
    "v3": (),
}
RELEASES = [*kit.PACKAGES, *BUILDS]
#: Bytes of a block, blocks, threads; the distance between blocks that stay, or 0.
WORK = ("16000 6000 1 0", "8000 9000 1 0", "60000 1500 1 0", "200000 500 1 0", "1000000 60 1 0", "60000 400 4 0")
SOME_STAY = "16000 6000 1 1500"


class Ghost(NamedTuple):
    """A core, and the blocks that the program told: address to "live" or "lost"."""

    core: Path
    blocks: dict[int, str]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Ghost]:
    """Return what runs the program with a release, once for each work."""

    @cache
    def program() -> Path:
        return compile_c(HERE / "ghost.c", tmp_path_factory.mktemp("ghost") / "ghost", "-pthread")

    @cache
    def library(release: str) -> Path:
        if release in kit.PACKAGES:
            return kit.library(release)
        where = tmp_path_factory.mktemp("mimalloc")
        flags = ("-DMI_MALLOC_OVERRIDE", "-ftls-model=initial-exec", *BUILDS[release])
        whole = compiled(where, release.partition(",")[0], *flags)
        output = where / "libmimalloc.so"
        subprocess.run(["gcc", "-shared", str(whole), "-o", str(output), "-pthread"], check=True)
        return output

    @cache
    def run(release: str, work: str) -> Ghost:
        where = tmp_path_factory.mktemp("run")
        told = where.with_suffix(".told")
        core = kernel_core(program(), where, *work.split(), env={"LD_PRELOAD": str(library(release))}, output=told)
        lines = (line.split() for line in told.read_text().splitlines())
        return Ghost(core, {int(hidden) ^ HIDDEN: state for state, hidden in lines})

    return run


@pytest.mark.parametrize("work", only(WORK[:1], WORK))
@pytest.mark.parametrize("release", only(["2.0.9"], RELEASES))
def test_freed_segments_are_no_damage(release: str, work: str, made: Callable[..., Ghost]) -> None:
    ghost = made(release, work)
    target = CoreFile(str(ghost.core))
    heap = find_heap(target)
    answer = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert {row["verdict"] for row in answers.by_name(answer)["arenas"]} == {"clean"}
    assert answer["status"] == 0
    assert kit.walked(heap).problems == []
    states = {LIVE: "live", DIRECT: "lost", INDIRECT: "lost"}
    found = {at: heap.block_at(at) for at in ghost.blocks}
    assert {at: states.get(block.state) for at, block in found.items() if block is not None} == ghost.blocks
    # Debug builds may put a block of the program into the middle of one of mimalloc's.
    told = {block.address for block in found.values() if block is not None}
    assert {block.address for block in heap.blocks(DIRECT, INDIRECT)} <= told


class Segment(NamedTuple):
    """A segment of a release with narrow pages (2.0.9): where its cookie and its slices lie, and its first pages."""

    cookie: int
    span: int  # the first `mi_page_t` that is not the header's
    used: int  # how many pages are in use


def segments(core: Path) -> list[Segment]:
    """Return the segments of 2.0.9.

    Its `mi_segment_t` (types.h) has `used`, the cookie, 5 words, and the slices, of 80 bytes each. The first slices are
    the header's: word 4 before them says how many.
    """
    target = CoreFile(str(core))
    read = kit.walked(find_heap(target)).read
    assert read is not None
    found = []
    for start, _end, _thread in read.regions:
        words = struct.unpack("<64Q", target.image().read(start, 512))
        slices = next(at for at in range(12, 60) if words[at] == words[at - 4] and 0 < words[at] <= 8)
        found.append(Segment(start + 8 * (slices - 6), start + 8 * slices + 80 * words[slices], words[slices - 7]))
    return found


def damaged(core: Path, address: int, value: bytes, to: Path) -> dict[str, object]:
    """Return what heapcheck says where a copy of the core has other bytes at the address."""
    shutil.copy(core, to)
    with open(to, "r+b") as stream:
        stream.seek(offset(place(to), address))
        stream.write(value)
    answer = answers.answer(CoreFile(str(to)), "heapcheck", "--fail-on-damage")
    os.unlink(to)
    return answer


PAGE, SLICES = "the page's fields contradict each other", "the slices of the segment do not follow each other"
COOKIE = "the cookie of the segment is not that of its address"
#: Where the damage is in the first span, or None: in the cookie.
DAMAGES = {
    "block size": (28, b"\x41\0\0\0", PAGE),
    "capacity": (10, b"\7\0", PAGE),
    "free list": (16, b"\x41" * 8, PAGE),
    "slice count": (0, bytes(4), SLICES),
    "cookie": (None, b"\x41" * 8, COOKIE),
    "cleared cookie": (None, bytes(8), COOKIE),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_freed_segment_is_found(damage: str, made: Callable[..., Ghost], tmp_path: Path) -> None:
    at, value, said = DAMAGES[damage]
    core = made("2.0.9", WORK[0]).core
    freed = next(one for one in segments(core) if not one.used)
    answer = damaged(core, freed.cookie if at is None else freed.span + at, value, tmp_path / "core")
    assert answer["status"] == 3
    assert said in str(answer)


@pytest.mark.parametrize("value", [b"\x41" * 8, bytes(8)], ids=["overwritten", "cleared"])
def test_a_segment_in_use_keeps_its_blocks_without_its_cookie(
    value: bytes, made: Callable[..., Ghost], tmp_path: Path
) -> None:
    ghost = made("2.0.9", SOME_STAY)
    used = [one for one in segments(ghost.core) if one.used]
    assert len(used) > 2
    core = tmp_path / "core"
    shutil.copy(ghost.core, core)
    with open(core, "r+b") as stream:
        stream.seek(offset(place(core), used[1].cookie))
        stream.write(value)
    target = CoreFile(str(core))
    answer = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert answer["status"] == 3
    assert COOKIE in str(answer)
    heap = find_heap(target)
    found = {block.address: block.state for block in heap.blocks(LIVE, DIRECT, INDIRECT)}
    assert {at: found.get(at) == LIVE for at in ghost.blocks} == {at: s == "live" for at, s in ghost.blocks.items()}
    assert ghost.blocks.keys() <= found.keys()
