"""`kmausers --source tags`, compared with what the guest's own /proc/allocinfo said just before it died."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from dmods.errors import UsageError, UserError
from drgnext.kernel.system.alloctags import alloc_tags
from drgnext.kernel.system.reading import Reader
from fixtures import answers, kernel
from fixtures.kernel import tagged
from tests.kernel import crashed
from tests.kernel.memory import open_kernel

#: bytes, calls, file, line, module, function
Line = tuple[int, int, str, int, str, str]
BLOCKS = 100  # fixtures/kernel/tagged_guest/dmods_tagged.c


def builds(test: Callable[..., None]) -> Any:
    """Mark a test that needs a kernel of our own."""
    return pytest.mark.thorough("it builds a kernel")(pytest.mark.seldom("it builds a kernel")(test))


@cache
def opened() -> Any:
    return open_kernel(tagged.guest())


def readings() -> list[list[Line]]:
    """Return what /proc/allocinfo said each time."""
    prog = opened().prog
    texts = [
        prog.read(prog["said"][number].value_(), int(prog["said_size"][number])).decode()
        for number in range(len(prog["said"]))
    ]
    line = re.compile(r"^ *(-?\d+) +(\d+) (\S+):(\d+) (?:\[(\S+)\] )?func:(\S+) *$", re.M)
    return [
        [
            (int(size), int(calls), file, int(at), module, name)
            for size, calls, file, at, module, name in line.findall(text)
        ]
        for text in texts
    ]


def rows(*words: str) -> list[dict[str, Any]]:
    return answers.by_name(crashed.ask(opened(), "kmausers", *words))["users"]


@builds
def test_each_call_site_has_what_the_kernel_counted() -> None:
    before, last = readings()
    assert len(last) > 500
    assert len(last) == len(before)
    found = alloc_tags(Reader(opened()))
    assert found is not None
    assert [(tag.file, tag.line, tag.module, tag.function) for tag in found] == [line[2:] for line in last]
    # Reading the file itself allocates: its state for as long as it reads (allocinfo_start). What it changed between
    # two readings, it may have changed after the last one, too.
    moved = {line[2:] for first, line in zip(before, last) if first[:2] != line[:2]}
    differ = [line for tag, line in zip(found, last) if (tag.bytes, tag.calls) != line[:2] and line[2:] not in moved]
    assert [line[-1] for line in differ] == ["allocinfo_start"]
    assert len(moved) < 20


@builds
def test_counters_of_all_possible_cpus_are_added_up() -> None:
    """Half of the blocks were freed on another CPU, which the panic took offline."""
    taken = [row for row in rows("--all") if row["module"] == "dmods_tagged" and row["function"] == "take"]
    assert BLOCKS // 2 in {row["count"] for row in taken}
    assert {7, 1} <= {row["count"] for row in taken}
    assert all(row["source"] == f"{row['file']}:{row['line']}" for row in taken)


@builds
def test_modules_and_functions_add_up() -> None:
    everything = rows("--all")
    for by, key in (("library", "module"), ("function", "function")):
        sums: Counter[str] = Counter()
        for row in everything:
            sums[row[key]] += row["bytes"]
        assert {row[key]: row["bytes"] for row in rows("--by", by, "--all")} == dict(sums)
    answer = crashed.ask(opened(), "kmausers", "--top", "3")
    assert answer["totals"]["bytes"] == sum(row["bytes"] for row in everything)
    assert [row["bytes"] for row in answers.by_name(answer)["users"]] == [row["bytes"] for row in everything[:3]]
    assert {row["function"] for row in rows("take", "--all")} == {"take"}
    with pytest.raises(UsageError, match="not caches"):
        crashed.ask(opened(), "kmausers", "--by", "cache")


def test_a_kernel_that_does_not_count() -> None:
    subject = open_kernel(kernel.guest("6.1"))
    assert alloc_tags(Reader(subject)) is None
    with pytest.raises(UserError, match="did not count memory by call site"):
        crashed.ask(subject, "kmausers", "--source", "tags")
    with pytest.raises(UserError, match="did not record who allocated slab objects"):
        crashed.ask(subject, "kmausers")
