"""The ways in which a C program gets jemalloc: preloaded, linked in, loaded late, twice. All programs are stripped."""

from __future__ import annotations

from typing import Optional

import pytest

from dmods.allocators.jemalloc.numbers import split
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import jemallocs
from fixtures.cores import CoreSet
from fixtures.heaps import jemalloc_heaps
from tests import quick
from tests.allocators.jemalloc.test_truth import open_core, problems_of


def right(made: CoreSet) -> ProcessHeap:
    heap = find_heap(open_core(made))
    assert problems_of(made, heap) == []
    assert heap.notes == []
    assert [each.one.extents.fault_count for each in jemalloc_heaps(heap)] == [0] * len(jemalloc_heaps(heap))
    return heap


@pytest.mark.parametrize("program", ["graph", "anchors"])
def test_preloaded(program: str) -> None:
    assert len(jemalloc_heaps(right(jemallocs.take(program, variant="stripped")))) == 1


@pytest.mark.parametrize(
    ("program", "mode"),
    [
        ("handlers", ""),
        ("ownstacks", ""),
        pytest.param("ownstacks", "stale", marks=pytest.mark.thorough("glibc's malloc shows the same")),
        pytest.param("ownstacks", "main-fiber", marks=pytest.mark.thorough("glibc's malloc shows the same")),
        ("forkers", "from-thread"),
        ("forkers", "new-threads"),
        pytest.param("forkers", "own-stacks", marks=pytest.mark.thorough("another way of it is tested")),
    ],
)
def test_preloaded_with_unusual_threads(program: str, mode: str) -> None:
    """Stacks of the program's own, and tcaches of threads that are not there."""
    assert len(jemalloc_heaps(right(jemallocs.take(program, mode=mode)))) == 1


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "sid"])
def test_tcaches_whose_threads_are_gone(userland: str) -> None:
    right(jemallocs.take("forkers", userland=userland, mode="new-threads"))


@pytest.mark.quick("static-pie-kernel")
@pytest.mark.parametrize("how", quick.only(["kernel"], ["kernel", "gcore"]))
@pytest.mark.parametrize("variant", ["static-pie", "no-pie"])
def test_linked_in(variant: str, how: str) -> None:
    assert len(jemalloc_heaps(right(jemallocs.linked("graph", variant, how)))) == 1


@pytest.mark.quick("kernel-host-None-layouts0")
@pytest.mark.parametrize(
    ("library", "malloc", "layouts"),
    [
        ("host", None, {"5.3"}),
        # jemalloc is loaded while glibc's heap exists. jemalloc 5.2 remembers the end of that heap as its own break.
        ("bullseye", None, {"5.2"}),
        ("bullseye", "host", {"5.2", "5.3"}),
    ],
)
@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_loaded_late(how: str, library: str, malloc: Optional[str], layouts: set[str]) -> None:
    made = jemallocs.loaded(library, malloc, how)
    heap = right(made)
    assert {each.one.layout.name for each in jemalloc_heaps(heap)} == layouts
    homes = {
        name: {
            found.allocator if malloc is None else str(split(found.arena or 0)[0])
            for block in made.truth.blocks.values()
            if block.name == name and block.state != "freed" and (found := heap.block_at(block.address))
        }
        for name in ("loaded", "own")
    }
    assert [len(home) for home in homes.values()] == [1, 1]
    assert homes["loaded"] != homes["own"]
