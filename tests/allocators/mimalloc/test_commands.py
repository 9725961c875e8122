"""The commands on a process that runs with mimalloc."""

from __future__ import annotations

import pytest

from dmods.heap.heap import find_heap
from fixtures import answers, audited, cores, judge
from fixtures import mimallocs as kit
from fixtures.cores import CoreSet

pytestmark = pytest.mark.thorough("the heap of mimalloc: a core of each release")


@pytest.fixture(scope="module", params=kit.PACKAGES)
def made(request: pytest.FixtureRequest) -> CoreSet:
    return kit.take("freed", request.param)


def test_tables(made: CoreSet) -> None:
    target = judge.open_core(made)
    leaks = answers.answer(target, "findleaks", "--fail-on-leak")
    assert leaks["status"] == 3
    assert not any("not walked" in note for note in leaks["notes"])
    heap = kit.walked(find_heap(target))
    totals = answers.answer(target, "heapsizes")["totals"]
    assert totals["leaked_count"] == len(made.truth.leaked)
    assert answers.answer(target, "heapcheck")["status"] == 0
    report = answers.answer(target, "malloc_stats")
    assert any("blocks on free lists" in str(row) for table in answers.by_name(report).values() for row in table)
    for command in ("types", "owners", "walk", "triage"):
        arguments = ("leakbuf",) if command == "walk" else ()
        assert answers.answer(target, command, *arguments)["tables"]
    assert heap.problems == []


def test_whatis_names_the_list_of_a_free_block(made: CoreSet) -> None:
    target = judge.open_core(made)
    heap = kit.walked(find_heap(target))
    held = [heap.holder(block.address) for block in made.truth.blocks.values() if block.state == "freed"]
    assert any(held)
    live = next(block for block in made.truth.blocks.values() if block.state == "live")
    assert heap.holder(live.address) is None
    free = next(
        block.address for block in made.truth.blocks.values() if block.state == "freed" and heap.holder(block.address)
    )
    report = answers.answer(target, "whatis", hex(free))
    assert "free" in str(report)


@pytest.mark.parametrize("release", kit.PACKAGES)
def test_records_attach_to_the_blocks(release: str) -> None:
    variables = audited.environment("audit")
    preload = f"{variables['LD_PRELOAD']} {kit.library(release)}"
    made = cores.take("freed", env={**variables, "LD_PRELOAD": preload})
    target = judge.open_core(made)
    heap = find_heap(target)
    assert not kit.problems(heap, made.truth)
    rows = [row for table in answers.by_name(answers.answer(target, "findleaks")).values() for row in table]
    requested = {row["requested"] for row in rows if "requested" in row}
    assert requested == {made.truth.blocks[address].size for address in made.truth.leaked}
