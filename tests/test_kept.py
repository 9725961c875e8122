"""What is kept of a target: for as long as it has not moved, and not longer than the target."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from dmods import command, places, stacks
from dmods import heap as heaps
from dmods.corefile import CoreFile
from dmods.kept import forget, kept
from tests.corekit import HERE, compile_c, kernel_core


class Counter:
    """Counts how often it is looked at; moves when told to."""

    def __init__(self) -> None:
        self.moves = 0
        self.looks = 0

    def state(self) -> int:
        return self.moves


@kept
def looked(at: Counter) -> int:
    """Once for each state."""
    at.looks += 1
    return at.looks


def test_asked_once_for_each_state() -> None:
    one, other = Counter(), Counter()
    assert [looked(one), looked(one), looked(other)] == [1, 1, 1]
    one.moves += 1
    assert [looked(one), looked(one), looked(other)] == [2, 2, 1]
    forget(one)
    assert [looked(one), looked(other)] == [3, 1]
    assert looked.__doc__ == "Once for each state."


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("kept")
    return kernel_core(compile_c(HERE / "locked.c", where / "locked"), where, "die")


def test_a_core_that_nobody_uses_any_more_is_gone(core: Path) -> None:
    target = CoreFile(str(core))
    heaps.of(target).leaks()
    places.of(target).at(heaps.of(target).arenas[0].top)
    stacks.walk(target, target.threads()[0])
    left = weakref.ref(target)
    del target
    gc.collect()
    assert left() is None


def test_findleaks_with_force_reads_the_heap_again(core: Path) -> None:
    target = CoreFile(str(core))
    findleaks = command.find("findleaks")
    before = heaps.of(target)
    findleaks.run(target, findleaks.parser().parse_args([]))
    assert heaps.of(target) is before
    findleaks.run(target, findleaks.parser().parse_args(["-f"]))
    assert heaps.of(target) is not before
