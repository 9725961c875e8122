"""Objects that only cycles hold, compared with what the collector of a forked twin found."""

from __future__ import annotations

from collections import Counter

import pytest

from dmods.errors import UserError
from dmods.heap.heap import find_heap
from fixtures import answers, pythons

DEBIANS = pytest.mark.thorough("it needs Debian's Pythons")
VERSIONS = pytest.mark.parametrize(
    "version", ["host", *(pytest.param(each, marks=DEBIANS) for each in pythons.VERSIONS)]
)


@VERSIONS
def test_cycles_are_those_that_the_collector_finds(version: str) -> None:
    made = pythons.core(version, "cycles")
    truth = made.truth()
    expected = {at ^ pythons.HIDDEN: name for at, name in truth["garbage"]}
    assert len(expected) > 2000
    target = made.target()
    heap = find_heap(target)
    leaks = heap.leaks()
    ours = set(heap.marks.unfreed)
    assert ours - expected.keys() == set()
    # An old word may hold a cycle, and all that it leads to. Of 500 that are alone, and of 50 classes, most are found.
    singles = {at ^ pythons.HIDDEN for at in truth["singles"]}
    assert singles <= expected.keys()
    assert 10 * len(singles - ours) <= len(singles)
    classes = {at for at, name in expected.items() if name == "type"}
    assert len(classes) >= 50
    assert 5 * len(classes - ours) <= len(classes)
    assert not {at ^ pythons.HIDDEN for at in truth["lost"]} & ours
    assert leaks.direct_count > 0
    shown = answers.answer(target, "pyobjects", "--cycles", "--top", "1000")
    counts = {row["type"].rpartition(".")[2]: row["tracked"] for row in answers.by_name(shown)["types"]}
    assert counts == Counter(expected[at] for at in ours)


def test_cycles_have_a_line_of_their_own() -> None:
    target = pythons.core("host", "cycles").target()
    rows = {row["owner"]: row for row in answers.answer(target, "owners", "--top", "1000")["tables"][0]["rows"]}
    assert rows["garbage that Python's collector has not freed"]["count"] >= len(find_heap(target).marks.unfreed)
    assert "other memory" not in rows


def test_objects_of_a_type_in_cycles() -> None:
    made = pythons.core("host", "cycles")
    listed = answers.typed("pyobjects", *made.argv(), "--cycles", "--type", "Slotted", "--top", 5)
    rows = answers.by_name(listed)["objects"]
    garbage = {at ^ pythons.HIDDEN: name for at, name in made.truth()["garbage"]}
    assert [garbage[int(row["address"], 16)] for row in rows] == ["Slotted"] * 5
    with pytest.raises(UserError) as refused:
        answers.report(made.target(), "pyobjects", "--cycles", "--type", "float")
    assert "no object in a cycle has the type float" in refused.value.what
