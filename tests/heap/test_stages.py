"""The stages of a heap: none can be asked too early, and none changes an answer of another."""

from __future__ import annotations

from typing import Any

import pytest

from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from dmods.heap.survey import survey
from fixtures import answers, cores
from fixtures.judge import open_core


def test_the_index_knows_no_leaks_before_and_after_marking() -> None:
    made = cores.take("shapes")
    heap = find_heap(open_core(made))
    leaked = made.truth.addresses("direct", "indirect", "cycle")
    assert len(leaked) > 30_000
    before = heap.index.engine.sizes(), list(heap.index.blocks(LIVE))
    assert {block.address for block in heap.marks.blocks(DIRECT, INDIRECT)} == leaked
    assert (heap.index.engine.sizes(), list(heap.index.blocks(LIVE))) == before
    assert leaked <= {block.address for block in before[1]}
    for address in sorted(leaked)[::1000]:
        block, marked = heap.index.block_at(address), heap.marks.block_at(address)
        assert block is not None
        assert marked is not None
        assert (block.state, marked.state in (DIRECT, INDIRECT)) == (LIVE, True)


def test_a_stage_that_is_over_refuses() -> None:
    target = open_core(cores.take("freed"))
    index = find_heap(target).index
    index.engine.mark([], [])
    with pytest.raises(RuntimeError, match="once"):
        index.engine.mark([], [])


def test_marks_that_were_continued_refuse() -> None:
    made = cores.take("shapes")
    index = find_heap(open_core(made)).index
    marks = index.engine.mark([], [])
    direct, *_ = marks.totals
    assert marks.candidates == 0
    assert direct > 0
    root = next(iter(made.truth.addresses("direct")))
    more = marks.more([root])
    block = more.find(root)
    assert block is not None
    assert (block.state, more.candidates) == (LIVE, 1)
    refused: list[Any] = [marks.groups, marks.sizes, lambda: marks.find(root), lambda: marks.more([root])]
    for ask in refused:
        with pytest.raises(RuntimeError, match="further blocks"):
            ask()


def test_a_builder_ends_with_its_index() -> None:
    from dmods._engine import HeapBuilder

    target = open_core(cores.take("freed"))
    (heap,) = [one for one in survey(target).heaps if one.allocator == "glibc malloc"]
    (walk,) = heap.walks()
    runs: Any = [(*run, 0) for run in walk.runs]  # type: ignore[union-attr]
    builder = HeapBuilder(target.image(), target.arch.word, runs, [], [], 1)
    assert builder.reports()
    index = builder.index()
    assert index.runs()
    refused: list[Any] = [builder.reports, builder.index, lambda: builder.release([1]), lambda: builder.own([1], False)]
    for ask in refused:
        with pytest.raises(RuntimeError, match="the index is made"):
            ask()


@pytest.mark.parametrize("command", ["panicinfo", "heapcheck", "malloc_stats --bins", "maps"])
def test_what_asks_for_no_leaks_marks_nothing(command: str) -> None:
    """Marking takes a good part of findleaks. `maps` counts leaks, and needs it."""
    target = open_core(cores.take("freed"))
    name, *words = command.split()
    answers.answer(target, name, *words)
    assert ("marks" in vars(find_heap(target))) == (command in ("maps", "malloc_stats --bins"))
