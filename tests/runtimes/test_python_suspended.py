"""Generators and coroutines outside of tasks, compared with what inspect and gc.get_objects() say of them."""

from __future__ import annotations

from collections import Counter

import pytest

from dmods.errors import UsageError
from fixtures import answers, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)


@VERSIONS
def test_generators_stand_where_their_frames_say(version: str) -> None:
    made = pythons.core(version, "suspended")
    truth = made.truth()
    answer = answers.typed("pystack", *made.argv(), "--suspended")
    ours: Counter[tuple[str, ...]] = Counter()
    for row in answers.by_name(answer)["suspended"]:
        # inspect does not tell the state of an asynchronous generator before 3.12.
        state = "" if row["kind"] == "async_generator" else row["state"]
        ours[row["kind"], state, row["file"], str(row["line"]), row["function"]] += row["count"]
    expected = Counter(tuple(map(str, row)) for row in truth["suspended"])
    assert sum(expected.values()) > 100
    assert ours == expected
    # Those of the tasks are not counted.
    assert answer["totals"]["in_tasks"] == truth["tasks"]
    assert answer["totals"]["suspended"] == sum(expected.values())


def test_an_example_is_a_generator_that_stands_there() -> None:
    made = pythons.core("host", "suspended")
    (first, *_) = answers.by_name(answers.typed("pystack", *made.argv(), "--suspended"))["suspended"]
    said = answers.by_name(answers.typed("whatis", *made.argv(), first["example"]))["python"][0]
    assert said["type"] == first["kind"]
    printed = answers.printed("pystack", *made.argv(), "--suspended")
    assert f"{first['file'].rpartition('/')[2]}:{first['line']}" in printed


def test_one_list_at_a_time() -> None:
    made = pythons.core("host", "suspended")
    with pytest.raises(UsageError):
        answers.report(made.target(), "pystack", "--tasks", "--suspended")
