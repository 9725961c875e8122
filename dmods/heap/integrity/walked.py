"""Find contradictions in the records of the other allocators that dmods walks: what their readers met."""

from __future__ import annotations

from collections.abc import Iterator

from dmods.heap.integrity.contradiction import Contradiction
from dmods.heap.process_heap import ProcessHeap


def contradictions(heap: ProcessHeap) -> Iterator[Contradiction]:
    """Yield the problems of each heap, in the order in which its reader met them."""
    for one in heap.walked:
        for problem in one.problems:
            if heap.is_missing(problem.address):
                continue  # what is not there is not damaged
            yield Contradiction(one.arena, one.name, problem.address, problem.text)
