"""A process with two allocators: a Rust program with its own jemalloc (static, prefixed), and C code on glibc."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from dmods.allocators.jemalloc.numbers import split
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import jemallocs
from fixtures.heaps import glibc, jemalloc_heaps
from fixtures.jemallocs import CRATES
from tests.allocators.jemalloc.test_truth import problems_of

pytestmark = pytest.mark.thorough("it builds jemalloc")

NEW = replace(CRATES["5.3.0"], features=("profiling", "stats"))


class Case(NamedTuple):
    crate: jemallocs.Crate
    how: str = "kernel"

    def __str__(self) -> str:
        return f"{self.crate}-{self.how}"


@pytest.mark.parametrize("case", [Case(NEW), Case(NEW, "gcore")], ids=str)
def test_both_allocators_are_shown(case: Case) -> None:
    made = jemallocs.both(case.crate, case.how)
    heap = find_heap(CoreFile(str(made.core)))
    assert problems_of(made, heap) == []
    assert heap.notes == []
    bits = jemallocs.address_bits(case.crate)
    assert [each.one.layout.name for each in jemalloc_heaps(heap)] == [
        "5.3" if bits == 48 else f"5.3, {bits} address bits"
    ]
    assert glibc(heap).all
    for block in made.truth.blocks.values():
        found = heap.block_at(block.address)
        assert found is not None
        assert found.allocator == ("glibc malloc" if block.name in ("c-block", "held-across") else "jemalloc")
    groups = {group.allocator for group in heap.leaks().groups}
    assert groups == {"jemalloc", "glibc malloc"}
    # Blocks of one allocator that only a block of the other keeps alive, live and leaked.
    across = {block.address for block in made.truth.blocks.values() if block.name == "held-across"}
    states = {block.state for block in heap.blocks(LIVE, DIRECT, INDIRECT) if block.address in across}
    assert states == {LIVE, INDIRECT}


def test_c_code_may_have_another_jemalloc() -> None:
    made = jemallocs.both(NEW, malloc_of="host")
    heap = find_heap(CoreFile(str(made.core)))
    assert problems_of(made, heap) == []
    assert heap.notes == []
    assert len(jemalloc_heaps(heap)) == 2
    of_c = [block for block in made.truth.blocks.values() if block.name in ("c-block", "held-across")]
    arenas = {split(found.arena or 0)[0] for b in of_c if (found := heap.block_at(b.address))}
    assert len(arenas) == 1
    (order,) = arenas
    assert jemalloc_heaps(heap)[order].name == "jemalloc of libjemalloc.so.2"
