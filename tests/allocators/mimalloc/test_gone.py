"""Pages that are gone: their memory was cleared, unmapped, or used again, and the page map may still lead to it.

`_mi_page_map_unregister` of 3.0.1 leaves the entries in the map. When the memory is cleared depends on
MIMALLOC_PURGE_DELAY, so each test sets it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import cores, judge
from fixtures import mimallocs as kit
from tests.allocators.mimalloc.test_damage import offset, place

pytestmark = pytest.mark.thorough("the heap of mimalloc: cores of their own")

#: Milliseconds after which the memory of a page that is gone is cleared.
DELAYS = ("0", "100000")


def take(program: str, release: str, delay: str) -> cores.CoreSet:
    env = {"LD_PRELOAD": str(kit.library(release)), "MIMALLOC_PURGE_DELAY": delay}
    return cores.take(program, env=env)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("release", kit.PACKAGES)
@pytest.mark.parametrize("program", ["gone", "graph", "arenas", "sizes"])
def test_pages_that_are_gone_are_no_damage(program: str, release: str, delay: str) -> None:
    made = take(program, release, delay)
    heap = find_heap(judge.open_core(made))
    wrong = kit.problems(heap, made.truth, links=program in ("arenas", "sizes"))
    assert not wrong, "\n".join(wrong[:20])
    assert kit.walked(heap).problems == []
    assert kit.walked(heap).notes == []


def test_the_same_pages_are_found_whenever_memory_is_cleared() -> None:
    counts = set()
    for delay in DELAYS:
        read = kit.walked(find_heap(judge.open_core(take("gone", "3.0.1", delay)))).read
        assert read is not None
        counts.add(read.counts())
    assert len(counts) == 1


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("fill", [b"\0", b"\xa5"])
def test_a_page_in_use_that_was_overwritten_is_damage(delay: str, fill: bytes, tmp_path: Path) -> None:
    made = take("gone", "3.0.1", delay)
    read = kit.walked(find_heap(CoreFile(str(made.core)))).read
    assert read is not None
    live = next(block.address for block in made.truth.blocks.values() if block.name == "kept-500")
    page = read.page_at(live)
    assert page is not None
    core = Path(shutil.copy(made.core, tmp_path / "core"))
    with open(core, "r+b") as stream:
        stream.seek(offset(place(core), page[0]))
        stream.write(fill * 112)
    problems = kit.walked(find_heap(CoreFile(str(core)))).problems
    assert [(one.address, one.text) for one in problems] == [(page[0], "the page's fields contradict each other")]
