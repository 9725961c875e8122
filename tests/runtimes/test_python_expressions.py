"""Expressions that lead to objects of CPython, compared with those that the process evaluated before it died."""

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
