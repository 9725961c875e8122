"""Go's heap in cores that were taken while the collector marked or swept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import FREE, LIVE
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import answers
from tests import corekit
from tests.runtimes.golang.test_heap import build, memory_statistics

pytestmark = pytest.mark.thorough("it builds Go programs with several releases of Go")

#: Those with mark bits beside the span's record, and those with mark bits inside spans (Green Tea).
RELEASES = ("1.19.13", "1.24.13", "1.26.0")
_OTHERS = ("1.20.14", "1.25.5", "1.25.5 greenteagc", "1.27.4")
_SELDOM = pytest.mark.seldom("the other releases sweep alike")
LARGER = 70 << 20


class Died(NamedTuple):
    core: Path
    heap: ProcessHeap
    statistics: dict[str, int]

    def states(self) -> Counter[tuple[str, Optional[int], bool]]:
        """Return how many known objects there are by (what, state of the block, garbage)."""
        found: Counter[tuple[str, Optional[int], bool]] = Counter()
        for line in self.core.with_name("truth").read_text().splitlines():
            what, at, size = line.split()
            block = self.heap.block_at(int(at, 16))
            assert block is None or block.size >= int(size)
            garbage = block is not None and self.heap.marks.is_garbage(block)
            found[what, block.state if block is not None else None, garbage] += 1
        return found


@pytest.fixture(scope="module", params=[*RELEASES, *(pytest.param(each, marks=_SELDOM) for each in _OTHERS)])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where, cache = tmp_path_factory.mktemp("gosweep"), tmp_path_factory.getbasetemp() / f"cache-{request.param}"
    return build(request.param, "-s -w", "gosweep.go", where, cache)


def died(program: Path, when: str) -> Died:
    where = program.with_name(when)
    where.mkdir()
    core = corekit.kernel_core(program, where, when, "truth", "stats")
    heap = find_heap(CoreFile(str(core)))
    assert not heap.leaks().direct_count
    assert heap.notes == []
    in_use, _by_size = memory_statistics(core.with_name("stats").read_bytes())
    assert sum(size * count for size, count, *_rest in heap.marks.engine.sizes()) == in_use > LARGER
    rows = answers.by_name(answers.answer(heap.target, "malloc_stats"))["allocator"]
    return Died(core, heap, {row["what"]: row["value"] for row in rows})


def test_objects_without_a_mark_are_garbage_before_they_are_swept(program: Path) -> None:
    """Also those that a number in a variable seems to point to."""
    end = died(program, "sweeping")
    assert end.statistics["spans that wait for the sweeper"] > 300
    assert end.statistics["objects without a mark in these spans"] > 1000
    states = end.states()
    assert states["dead", LIVE, True] > 300
    assert {key[1:] for key in states if key[0] == "live"} == {(LIVE, False)}
    assert states["dead", LIVE, False] <= states["dead", LIVE, True] // 10  # swept, and used again by the runtime
    answer = answers.typed("findleaks", end.core)
    assert any("of Go garbage in" in note for note in answer["notes"])
    assert "clean" in answers.printed("heapcheck", end.core)


def test_marks_count_only_when_marking_has_ended(program: Path) -> None:
    end = died(program, "marking")
    assert end.statistics["spans that wait for the sweeper"] == 0
    assert end.statistics["objects without a mark in these spans"] == 0
    states = end.states()
    assert {key[1:] for key in states if key[0] == "live"} == {(LIVE, False)}
    assert not any(state in (FREE, None) for _what, state, _garbage in states)
    assert states["dead", LIVE, True] > 300
