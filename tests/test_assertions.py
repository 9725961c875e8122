"""Every test has an assertion that fails when there is nothing to look at (tests/assertions.py)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.assertions import Files

#: Bodies of tests that pass although `given()` returns nothing.
WEAK = {
    "a loop": "for each in given():\n    assert each",
    "a loop while something is left": "left = given()\nwhile left:\n    assert left.pop()",
    "a loop over an empty literal": "for each in []:\n    assert each",
    "a loop that grows its list": "rows = []\nrows += given()\nfor each in rows:\n    assert each",
    "a loop inside a loop": "for each in (1, 2):\n    for row in given(each):\n        assert row",
    "all": "assert all(row for row in given())",
    "all of a choice": "assert all(row for row in (1, 2) if row in given())",
    "no any": "assert not any(row for row in given())",
    "an empty choice": "assert not [row for row in given() if row]",
    "a choice that equals an empty list": "assert sorted(row for row in given() if row) == []",
    "a choice with a name": "wrong = [row for row in given() if row]\nassert wrong == []",
    "a subset": "assert {row for row in given()} <= {1, 2}",
    "two of them": "assert not any(given()) and all(given())",
    "a helper": "helper(given())",
    "a helper that asserts something else": "for row in read():\n    assert row",
    "nothing": "given()",
}
#: Bodies of tests that fail if `given()` returns nothing, or that do not depend on it.
STRONG = {
    "a size": "rows = given()\nassert len(rows) == 3\nfor row in rows:\n    assert row",
    "a counter": "count = 0\nfor row in given():\n    count += 1\nassert count == 3",
    "a loop over a literal": "for each in (1, 2):\n    assert given(each)",
    "a loop over items": "for name, each in {'a': 1}.items():\n    assert given(each)",
    "a loop over a constant": "for number, each in enumerate(KINDS):\n    assert given(each) == number",
    "a loop over an imported constant": "for each in zip(other.NAMES, KINDS):\n    assert given(each)",
    "a loop over numbers": "for each in range(COUNT):\n    assert given(each)",
    "a loop over all of a literal": "kinds = [given(each) for each in KINDS]\nfor kind in kinds:\n    assert kind",
    "all of a literal": "assert all(given(each) for each in KINDS)",
    "a choice of a literal": "assert [each for each in KINDS if given(each)] == []",
    "any": "assert any(row for row in given())",
    "a set": "assert {row for row in given()} == {1, 2}",
    "an exception": "with pytest.raises(ValueError):\n    given()",
    "a helper with a size": "helper_of_three(given())",
    "an imported helper": "other.same(given(), 3)",
    "a helper that asserts the size of what it returns": "for row in rows():\n    assert row",
    "a function inside": "def inner():\n    assert given()\ninner()",
    "a name that tells": "judge_of_elsewhere(given())",
}
MODULE = """
import pytest
from elsewhere import given, judge_of_elsewhere
from fixtures import other

KINDS = ("a", *given())
COUNT, NONE = 3, 0

def helper(rows):
    for row in rows:
        assert row

def helper_of_three(rows):
    assert len(rows) == 3

def read():
    done = given()
    assert done.returncode == 0
    return done.rows

def rows():
    found = given()
    assert found
    return found

def test_it():
"""


def unproven(root: Path, body: str) -> list[str]:
    """Return the tests that are found in a checkout with that one test."""
    for name in ("tests", "fixtures"):
        (root / name).mkdir()
    (root / "fixtures" / "__init__.py").touch()
    (root / "fixtures" / "other.py").write_text(
        "NAMES: tuple = ('x',)\n\ndef same(one, other):\n    assert one == other\n"
    )
    (root / "tests" / "test_one.py").write_text(MODULE + textwrap.indent(body, "    ") + "\n")
    return list(Files(root).unproven())


@pytest.mark.parametrize("body", WEAK.values(), ids=WEAK)
def test_a_test_that_may_look_at_nothing_is_found(tmp_path: Path, body: str) -> None:
    assert unproven(tmp_path, body) == ["tests/test_one.py::test_it"]


@pytest.mark.parametrize("body", STRONG.values(), ids=STRONG)
def test_a_test_that_looks_at_something_is_not_found(tmp_path: Path, body: str) -> None:
    assert unproven(tmp_path, body) == []


def test_every_test_fails_if_there_is_nothing_to_look_at() -> None:
    """To mend a test that is found here, let it assert how many there are, before the loop or after it."""
    files = Files()
    assert list(files.unproven()) == []
    assert sum(len(module.tests) for module in files.known.values()) > 1000
