"""The expressions that reach an object of CPython, compared with those that the process evaluated before it died."""

from __future__ import annotations

import pytest

from fixtures import answers, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)


@VERSIONS
def test_whatis_says_the_expression(version: str) -> None:
    made = pythons.core(version, "expressions")
    target = made.target()
    different = {}
    told = made.truth()
    for expression, hidden in told:
        answer = answers.by_name(answers.answer(target, "whatis", hex(hidden ^ pythons.HIDDEN)))
        ours = answer["python"][0]["held_by"]
        if ours is None or ours.rpartition("/")[2] != expression.rpartition("/")[2]:
            different[expression] = ours
    assert len(told) > 100
    assert different == {}


@pytest.mark.thorough("it needs Debian's Pythons")
def test_a_frozendict_is_read_as_a_dict() -> None:
    made = pythons.core("3.15", "frozen")
    target, truth = made.target(), made.truth()
    listed = answers.answer(target, "pyobjects", "--type", "frozendict", "--top", "1000")
    rows = {int(row["address"], 16): row for row in answers.by_name(listed)["objects"]}
    sizes = {hidden ^ pythons.HIDDEN: size for hidden, size in truth["sizes"]}
    assert len(sizes) == 502
    assert {at: rows[at]["bytes"] for at in sizes} == sizes
    assert "1000 items" in {rows[at]["value"] for at in sizes}
    ours = {}
    for expression, hidden in truth["expressions"]:
        answer = answers.by_name(answers.answer(target, "whatis", hex(hidden ^ pythons.HIDDEN)))
        ours[expression] = answer["python"][0]["held_by"]
    assert len(ours) == 5
    assert ours == {expression: expression for expression in ours}
    assert answers.answer(target, "findleaks")["totals"]["direct_count"] == 0
