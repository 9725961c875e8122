"""A process with two allocators: a Rust program with tikv-jemalloc-sys (static, prefixed), and C code on glibc."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from dmods import heap as heaps
from dmods.corefile import CoreFile
from dmods.heap import DIRECT, INDIRECT, LIVE
from fixtures import jemallocs
from tests.jemalloc.test_truth import problems_of


class Case(NamedTuple):
    """Releases of jemalloc as Rust programs have them, by the version of tikv-jemalloc-sys."""

    version: str
    layout: str
    how: str = "kernel"
    features: tuple[str, ...] = ("profiling",)

    def __str__(self) -> str:
        return "-".join((self.version, self.how, *self.features))


CASES = (
    Case("0.6.1", "5.3"),
    Case("0.6.1", "5.3", "gcore"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_allocators_are_shown(case: Case) -> None:
    made = jemallocs.both(case.how, case.version, case.features)
    heap = heaps.of(CoreFile(str(made.core)))
    assert problems_of(made, heap) == []
    assert heap.notes == []
    assert [one.layout.name for one in heap.jemallocs] == [case.layout]
    assert heap.arenas
    allocators = {"rust-node": "jemalloc", "rust-large": "jemalloc", "holder": "jemalloc", "explicit": "jemalloc"}
    for block in made.truth.blocks.values():
        found = heap.block_at(block.address)
        assert found is not None
        assert found.allocator == allocators.get(block.name, "glibc malloc")
    groups = {group.allocator for group in heap.leaks().groups}
    assert groups == {"jemalloc", "glibc malloc"}
    # What one allocator's block alone keeps alive in the other's, on either side of being leaked.
    across = {block.address for block in made.truth.blocks.values() if block.name == "held-across"}
    states = {block.state for block in heap.blocks(LIVE, DIRECT, INDIRECT) if block.address in across}
    assert states == {LIVE, INDIRECT}
