"""The holder of the GIL, compared with what the program arranged before it died."""

from __future__ import annotations

import pytest

from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.gil import find_gils
from fixtures import answers, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)


@VERSIONS
@pytest.mark.parametrize("who", ["dying", "none", "other"])
def test_the_holder_is_named(version: str, who: str) -> None:
    made = pythons.core(version, "gil", arguments=[who])
    holder = made.truth()["holder"]
    assert (holder is None) == (who == "none")
    (gil,) = answers.by_name(answers.typed("pystack", *made.argv()))["gils"]
    assert (gil["held"], gil["thread"]) == (holder is not None, holder)
    printed = answers.printed("pystack", *made.argv())
    assert printed.count("holds the GIL") == (holder is not None)
    assert printed.count("the GIL is free: no thread holds it") == (holder is None)
    (crash,) = answers.by_name(answers.typed("triage", *made.argv(), "--checks", "death"))["crash"]
    expected = {"dying": "this thread holds it", "none": "no thread holds it", "other": f"thread {holder} "}
    assert crash["gil"].startswith(expected[who])
    assert ("holds it, in keeps [" in crash["gil"]) == (who == "other")


@pytest.mark.thorough("it needs Debian's Pythons")
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_interpreters_have_their_own_since_3_12(version: str) -> None:
    """The thread that dies holds the GIL of the first interpreter; the threads of the others sleep."""
    made = pythons.core(version, "subinterpreters")
    target = made.target()
    python = find_python(target).python
    assert python is not None
    assert len(python.interpreters) == 3
    gils = find_gils(python)
    assert len(gils) == (3 if python.layout.version >= (3, 12) else 1)
    assert sorted(each for gil in gils for each in gil.interpreters) == sorted(python.interpreters)
    held = [gil for gil in gils if gil.holder is not None]
    assert [gil.holder.thread for gil in held if gil.holder] == [target.threads()[0]]
    printed = answers.printed("pystack", *made.argv())
    assert printed.count("is free: no thread holds it") == len(gils) - 1
