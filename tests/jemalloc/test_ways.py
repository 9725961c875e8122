"""The ways in which jemalloc comes into a C program: preloaded, linked in, loaded late, twice; all of them stripped."""

from __future__ import annotations

from typing import Optional

import pytest

from dmods import heap as heaps
from dmods.corefile import CoreFile
from dmods.heap import ProcessHeap
from dmods.jemalloc.heap import split
from fixtures import jemallocs
from fixtures.cores import CoreSet
from tests.jemalloc.test_truth import problems_of


def right(made: CoreSet) -> ProcessHeap:
    heap = heaps.of(CoreFile(str(made.core)))
    assert problems_of(made, heap) == []
    assert heap.notes == []
    assert [one.extents.fault_count for one in heap.jemallocs] == [0] * len(heap.jemallocs)
    return heap


@pytest.mark.parametrize("program", ["graph", "anchors"])
def test_preloaded(program: str) -> None:
    assert len(right(jemallocs.take(program, variant="stripped")).jemallocs) == 1


@pytest.mark.parametrize("how", ["kernel", "gcore"])
@pytest.mark.parametrize("variant", ["static-pie", "no-pie"])
def test_linked_in(variant: str, how: str) -> None:
    assert len(right(jemallocs.linked("graph", variant, how)).jemallocs) == 1


@pytest.mark.parametrize(
    ("library", "malloc", "layouts"),
    [
        ("host", None, {"5.3"}),
        # Loaded while glibc's heap is there: where that ended then, jemalloc 5.2 remembers as its own break.
        ("bullseye", None, {"5.2"}),
        ("bullseye", "host", {"5.2", "5.3"}),
    ],
)
@pytest.mark.parametrize("how", ["kernel", "gcore"])
def test_loaded_late(how: str, library: str, malloc: Optional[str], layouts: set[str]) -> None:
    made = jemallocs.loaded(library, malloc, how)
    heap = right(made)
    assert {one.layout.name for one in heap.jemallocs} == layouts
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
