"""Ends of containers that are beginnings of other blocks hide no leak, where blocks have no headers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmods.heap.block import DIRECT, INDIRECT
from dmods.heap.heap import find_heap
from fixtures import answers, cores, jemallocs, judge, mimallocs, tcmallocs
from fixtures.cores import CoreSet
from fixtures.judge import open_core

TAKE: dict[str, Callable[[], CoreSet]] = {
    "jemalloc": lambda: jemallocs.take("ends"),
    "tcmalloc": lambda: tcmallocs.take("ends"),
    "mimalloc": lambda: mimallocs.take("ends", "2.0.9"),
}


@pytest.mark.parametrize("allocator", TAKE)
def test_a_block_behind_a_vector_is_reported_or_doubtful(allocator: str) -> None:
    made = TAKE[allocator]()
    target, truth = open_core(made), made.truth
    answer = answers.answer(target, "findleaks", "--doubtful")
    listed = {int(row["buffer"], 16): row["why"] for row in answers.by_name(answer)["doubtful"]}
    leaked = {block.address for block in find_heap(target).blocks(DIRECT, INDIRECT)}
    assert not leaked & truth.addresses("live")
    assert not leaked - truth.leaked
    hidden = truth.leaked - leaked - listed.keys()
    assert not hidden, [truth.describe(address) for address in sorted(hidden)[:10]]
    doubted = truth.addresses("live") & listed.keys()
    assert not doubted, [truth.describe(address) for address in sorted(doubted)[:10]]
    assert len(listed) > 1000
    assert set(listed.values()) == {"held only by end pointers of the block before it"}
    assert any(f"{len(listed)} blocks" in note and "end pointers" in note for note in answer["notes"])


def test_with_headers_there_are_no_such_ends() -> None:
    made = cores.take("ends")
    heap = find_heap(open_core(made))
    assert judge.problems(heap, made.truth) == []
    assert not heap.marks.doubtful
