"""Leaks of programs that run with mimalloc preloaded: every one, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmods.heap.follow import Follow
from dmods.heap.heap import find_heap, find_heap_as
from fixtures import judge
from fixtures import mimallocs as kit

pytestmark = pytest.mark.thorough("the heap of mimalloc: a core of each program and release")

#: Programs that write to their blocks. In the others a link of the free list may be left in a block (docs/LIMITS.md).
WRITTEN = ("shapes", "graph", "freed", "anchors", "cxx", "forkers", "stale", "ownstacks", "handlers", "oxide")
LINKS = ("sizes", "arenas", "forked", "registers", "vectors")
#: Answers that are right for glibc's layout: a block of mimalloc has no header, and freed pages have no free chunks.
OTHER_LAYOUT = {"past-the-end", "at-header", "in-top", "in-freed-unsorted", "in-freed-tcached"}


def cases() -> Iterator[tuple[str, str, bool]]:
    for release in kit.PACKAGES:
        for program in (*WRITTEN, *LINKS):
            yield release, program, program in LINKS


@pytest.mark.parametrize(("release", "program", "links"), list(cases()))
def test_every_leak_and_nothing_else(release: str, program: str, links: bool) -> None:
    made = kit.take(program, release)
    heap = find_heap(judge.open_core(made))
    excused = OTHER_LAYOUT if program == "stale" else set()
    wrong = kit.problems(heap, made.truth, excused, links)
    assert not wrong, "\n".join(wrong[:20])
    assert kit.walked(heap).problems == []
    assert kit.walked(heap).serves_malloc


@pytest.mark.parametrize(("release", "program"), [case[:2] for case in cases() if case[2]])
def test_stale_links_hide_no_leak_where_they_are_left_out(release: str, program: str) -> None:
    made = kit.take(program, release)
    wrong = kit.problems(find_heap_as(judge.open_core(made), Follow(stale_links=True)), made.truth)
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("release", kit.PACKAGES)
def test_gcore_of_a_stripped_program(release: str) -> None:
    for made in (kit.take("graph", release, "gcore"), kit.take("graph", release, variant="stripped")):
        assert not kit.problems(find_heap(judge.open_core(made)), made.truth)
