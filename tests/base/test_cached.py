"""Values that are kept for a target: until it moves, and no longer than the target exists."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from dmods.base.cached import cached, forget
from dmods.command import find_command
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.heap.locate import address_finder
from dmods.process.unwind import walk
from fixtures.heaps import glibc
from tests.corekit import HERE, compile_c, kernel_core


class Counter:
    """A target that counts how often it is looked at, and moves when told to."""

    def __init__(self) -> None:
        self.moves = 0
        self.looks = 0

    def state(self) -> int:
        return self.moves


@cached
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
    find_heap(target).leaks()
    address_finder(target).at(glibc(find_heap(target)).all[0].top)
    walk(target, target.threads()[0])
    left = weakref.ref(target)
    del target
    gc.collect()
    assert left() is None


def test_findleaks_with_force_reads_the_heap_again(core: Path) -> None:
    target = CoreFile(str(core))
    findleaks = find_command("findleaks")
    before = find_heap(target)
    findleaks.run(target, findleaks.parser().parse_args([]))
    assert find_heap(target) is before
    findleaks.run(target, findleaks.parser().parse_args(["-f"]))
    assert find_heap(target) is not before
