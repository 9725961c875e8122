"""``stacks``: 200 threads in four known places."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from dmods.corefile.target import CoreFile
from dmods.process.shapes import STACK_COLUMNS
from dmods.report import Report
from fixtures import answers, cores

TRUNCATED = STACK_COLUMNS[1]


@cache
def target() -> CoreFile:
    return CoreFile(str(cores.take("frames", mode="threads").core))


def run(*words: str) -> Report:
    return answers.report(target(), "stacks", *words)


def functions(report: Report, number: int) -> list[str]:
    return [str(row[1]).rpartition("`")[2].partition("+")[0] for row in report.tables[number].rows]


def test_threads_in_the_same_place_are_one_stack() -> None:
    report = run()
    rows = list(report.tables[0].rows)
    assert [row[1] for row in rows] == [50, 50, 50, 50, 1]
    assert report.totals == {"stacks": 5, "threads": 201}
    places = Counter(name for n in range(1, 6) for name in functions(report, n))
    assert [places[f"wait{n}"] for n in range(4)] == [1, 1, 1, 1]
    assert places["waiter"] == 4
    assert "abort" in functions(report, 5)


def test_a_stack_that_the_limit_cuts_says_so() -> None:
    report = run("-n", "2")
    cut = [row[report.tables[0].columns.index(TRUNCATED)] for row in report.tables[0].rows]
    assert cut == [True] * len(cut)
    assert all(table.footer == ["... (the frame limit was reached: -n N shows more)"] for table in report.tables[1:])
    whole = run()
    assert not any(row[whole.tables[0].columns.index(TRUNCATED)] for row in whole.tables[0].rows)
    assert all(list(table.footer) == [] for table in whole.tables[1:])


def test_every_thread_is_in_one_stack() -> None:
    told: list[int] = []
    for row in run().tables[0].rows:
        for part in str(row[2]).split(","):
            first, _, last = part.partition("-")
            told += range(int(first), int(last or first) + 1)
    assert sorted(told) == sorted(thread.tid for thread in target().threads())


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("-c", "wait2"), 1),
        (("-c", "start_thread"), 4),
        (("-c", "inner"), 1),
        (("-c", "wait"), 0),
        (("-m", "libc"), 5),
        (("-m", "libc.so.6"), 5),
        (("-m", "frames", "-c", "wait1"), 1),
        (("-m", "lib"), 0),
    ],
)
def test_stacks_are_chosen_by_function_and_module(words: tuple[str, ...], count: int) -> None:
    assert run(*words).totals["stacks"] == count
