"""Threads that a fork did not copy: what they leaked is not called free because their caches once held it."""

from __future__ import annotations

import pytest

from dmods.heap.block import DIRECT, FREE, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import answers, jemallocs
from tests.allocators.jemalloc.test_truth import open_core, problems_of


@pytest.mark.parametrize("userland", ["host", "bullseye", "trixie", "sid"])
def test_leaks_of_lost_threads_are_doubtful(userland: str) -> None:
    made = jemallocs.take("lostcaches", userland=userland)
    target = open_core(made)
    heap, truth = find_heap(target), made.truth
    states = {block.address: block.state for block in heap.blocks(LIVE, FREE, DIRECT, INDIRECT)}
    leaked = {address for address, state in states.items() if state in (DIRECT, INDIRECT)}
    answer = answers.answer(target, "findleaks", "--doubtful")
    rows = answers.by_name(answer)["doubtful"]
    listed = {int(row["buffer"], 16) for row in rows}
    assert not leaked - truth.leaked
    assert not truth.leaked - leaked - listed, "a leak is neither reported nor listed"
    assert not listed & truth.addresses("live")
    assert not {address for address in truth.addresses("freed") if states.get(address, FREE) != FREE}
    assert not {address for address in truth.addresses("live") if states[address] != LIVE}
    if not listed:  # every cache is still there, or none ever was: glibc 2.42 and later
        assert userland != "host"
        return
    assert any(f"{len(rows)} blocks" in note and "--doubtful" in note for note in answer["notes"])
    one = min(listed & truth.leaked)
    block = answers.by_name(answers.answer(target, "whatis", hex(one)))["block"][0]
    assert block["state"] == "free, or leaked by a thread that a fork did not copy"


@pytest.mark.parametrize("userland", ["host", "bullseye", "trixie", "sid"])
def test_caches_that_are_still_there_leave_no_doubt(userland: str) -> None:
    """Nothing took the stacks of the old threads: their bins say how many blocks they hold."""
    made = jemallocs.take("lostcaches", userland=userland, mode="no-threads")
    target = open_core(made)
    assert problems_of(made, find_heap(target)) == []
    answer = answers.answer(target, "findleaks", "--doubtful")
    assert answers.by_name(answer)["doubtful"] == []
    assert not [note for note in answer["notes"] if "doubtful" in note]
