"""findleaks under gperftools' tcmalloc, against programs that know the answer: in the releases that Debian has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dmods.allocators.tcmalloc.heap import Tcmalloc
from dmods.heap.follow import Follow
from dmods.heap.heap import ProcessHeap, find_heap, find_heap_as
from fixtures import judge, tcmallocs
from fixtures.cores import CoreSet
from fixtures.heaps import others
from fixtures.tcmallocs import FULL, MINIMAL
from tests.auditkit import answer
from tests.heap.test_recorded import TCMALLOC, take

PROGRAMS = ("sizes", "shapes", "graph", "anchors", "stale", "freed", "arenas", "forkers", "remapped", "ownstacks")
MORE = ("handlers", "huge", "tcstats", "forked")

#: Blocks of which the truth holds for glibc alone: tcmalloc's blocks have no headers.
OTHER_LAYOUT = {"stale": {"past-the-end", "at-header"}}
#: Nobody writes to the blocks of these programs. So the first word still links to the free object that came next.
UNWRITTEN = ("forked", "callers")


class Case(NamedTuple):
    program: str
    userland: str = "host"
    which: str = MINIMAL
    how: str = "kernel"
    linked: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, self))

    def take(self) -> CoreSet:
        if self.linked:
            return tcmallocs.linked(self.program, self.linked, self.userland, self.how)
        return tcmallocs.take(self.program, self.how, self.userland, which=self.which)


def matrix() -> Iterator[Case]:
    for program in (*PROGRAMS, *MORE):
        yield Case(program)
    for program in ("graph", "freed", "anchors"):
        yield Case(program, how="gcore")
    for program in ("sizes", "graph", "tcstats"):
        yield Case(program, "bookworm", FULL)
    for program in ("freed", "tcstats"):
        yield Case(program, "bullseye")
        yield Case(program, "arm64-bookworm")
    for userland in ("trixie", "sid"):
        for program in ("sizes", "graph", "freed", "forked", "anchors", "tcstats"):
            yield Case(program, userland)
            yield Case(program, userland, FULL)
    for variant in ("dynamic", "static", "static-pie"):
        for program in ("sizes", "graph", "freed", "tcstats"):
            yield Case(program, "trixie", linked=variant)


def walked(heap: ProcessHeap) -> Tcmalloc:
    (one,) = others(heap)
    assert isinstance(one, Tcmalloc)
    return one


def problems(heap: ProcessHeap, made: CoreSet, program: str) -> list[str]:
    found = judge.problems(heap, made.truth, OTHER_LAYOUT.get(program, ()))
    left = [each for each in found if not (program in UNWRITTEN and each.startswith("not reported as direct"))]
    # In a static program tcmalloc's sums lie among the program's variables. The heap lies low: such a sum may be an
    # address in one or two blocks as large as the sums are.
    low = [each for each in left if re.match("(missed|not reported as direct): 0x[0-9a-f]{1,8} ", each)]
    large = [each for each in low if int(re.findall(r", (\d+) bytes", each)[0]) >= 1 << 20]
    return [each for each in left if each not in large] + (large if len(large) > 4 else [])


@pytest.mark.thorough("a core of its own for each; a core under the auditor is tested")
@pytest.mark.parametrize("case", list(matrix()), ids=str)
def test_every_leak_and_no_other(case: Case) -> None:
    made = case.take()
    heap = find_heap(judge.open_core(made))
    one = walked(heap)
    assert problems(heap, made, case.program) == []
    assert heap.notes == []
    assert one.problems == []
    assert one.serves_malloc


@pytest.mark.thorough("a core of its own for each")
@pytest.mark.parametrize("program", UNWRITTEN)
def test_stale_links_hide_no_direct_leak_where_they_are_left_out(program: str) -> None:
    made = tcmallocs.take(program)
    heap = find_heap_as(judge.open_core(made), Follow(stale_links=True))
    assert walked(heap).problems == []
    assert judge.problems(heap, made.truth) == []
    report = answer(judge.open_core(made), "findleaks", "--stale-links")
    assert report["totals"]["direct_count"] == len(made.truth.addresses("direct")) + len(made.truth.cycles)
    assert any("--stale-links" in note for note in report["notes"])


def test_records_attach_to_the_blocks() -> None:
    made = take("sizes", TCMALLOC)
    target = judge.open_core(made)
    heap = find_heap(target)
    assert walked(heap).problems == []
    assert problems(heap, made, "sizes") == []
    report = answer(target, "findleaks", "--fail-on-leak")
    assert (report["status"], report["notes"]) == (3, [])
    rows = [row for table in report["tables"].values() for row in table if "requested" in row]
    assert sum(row["leaked"] for row in rows) == len(made.truth.leaked)
    for row in rows:  # leaks of one stack and one size class stand in one row: the oldest
        assert made.truth.blocks[int(row["buffer"], 16)].size == row["requested"]
        assert row["caller"].partition("+")[0] in ("scene", "aligned")
