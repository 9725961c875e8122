"""The owners of CPython's objects, compared with what the program says: whose variable holds each object."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.owners.heap_owners import find_owners
from dmods.heap.block import DIRECT, FREE, LIVE
from dmods.heap.heap import ProcessHeap, find_heap
from fixtures import answers, pythons
from fixtures.pythons import PythonCore
from tests.corekit import kernel_core

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)
BUILDS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(
            pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons"))
            for each in (*pythons.VERSIONS, *pythons.PYDEBUG)
        ),
    ],
)


def _plain(name: str) -> str:
    """Return the name of an owner without the lines of frames, which the program does not tell, and without threads."""
    return re.sub(r":\d+ (\w+: \w+)( of thread \d+)?$", r":LINE \1", name)


def _truth(made: PythonCore) -> dict[str, list[tuple[int | None, int]]]:
    truth = made.truth()
    return {name: [(at and at ^ pythons.HIDDEN, size) for at, size in rows] for name, rows in truth.items()}


# The hooks of debug mode put words before and behind each object and each table.
@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["plain", "debug"])
@BUILDS
def test_each_object_belongs_to_its_variable(version: str, options: tuple[str, ...]) -> None:
    made = pythons.core(version, "variables", *options)
    owners = find_owners(made.target())
    truth = _truth(made)
    assert {"app.store.cache", "program.py:LINE main: mine"} <= truth.keys()
    for name, rows in truth.items():
        expected, _, places = name.partition(":LINE ")
        wanted = f"{expected.rpartition('/')[2]}:LINE {places.partition(',')[0]}" if places else name
        found: dict[str, int] = {}
        for at, _size in rows:
            above = owners.above(at) if at is not None else None
            if at is not None:
                text = owners.name_of(above[1]) if above is not None else "no block"
                plain = _plain(text)
                plain = plain.rpartition("/")[2] if places else plain
                found[plain] = found.get(plain, 0) + 1
        # A word that is left over behind an object may share a few with another variable.
        count = sum(at is not None for at, _size in rows)
        others = {each for each in found if each != wanted}
        assert found.get(wanted, 0) >= count - count // 1000, (name, found)
        assert all(wanted in each.split(", ") for each in others), (name, found)


@VERSIONS
def test_what_a_variable_holds_is_counted_once(version: str) -> None:
    """The line of a variable has its objects, its own dictionary and the table of that: no more, and no less."""
    made = pythons.core(version, "variables")
    lines = answers.by_name(answers.typed("owners", *made.argv(), "--top", 1 << 20))["owners"]
    rows = _truth(made)["app.store.cache"]
    (line,) = [each for each in lines if each["owner"] == "app.store.cache"]
    assert line["count"] == len(rows) + 2
    own = line["bytes"] - sum(size for _at, size in rows)
    # A dictionary of 20,000 entries has 2^15 places, an index of 2 bytes for each, and entries of 24 bytes or fewer.
    least, most = 2 * (1 << 15) + 16 * 20000, 2 * (1 << 15) + 24 * (1 << 15) * 2 // 3 + 8192
    assert least <= own <= most
    kinds = answers.by_name(answers.typed("retained", *made.argv(), line["roots"][0]["address"]))["kinds"]
    counts = {each["type"]: each["count"] for each in kinds}
    assert (counts["dict"], counts["dict (table)"], counts["bytes"]) == (20001, 20001, 20000)


@VERSIONS
def test_suspects_name_the_variable_and_its_dicts(version: str) -> None:
    made = pythons.core(version, "variables")
    found = answers.by_name(answers.typed("suspects", *made.argv(), "--least", "1M"))["suspects"]
    sentences = [each["sentence"] for each in found]
    assert any("`app.store.cache`" in each and "20,000 dict" in each for each in sentences), sentences
    (at,) = [row[0] for row in _truth(made)["app.store.cache"][:1]]
    path = answers.by_name(answers.typed("pathto", *made.argv(), hex(at or 0)))["path"]
    assert path[0]["place"] == "app.store.cache"


@pytest.mark.quick("kept-host")
@VERSIONS
@pytest.mark.parametrize("dies", ["collected", "kept"])
def test_old_slots_of_free_lists_own_nothing(version: str, dies: str) -> None:
    """Objects of locals lie where freed ones lay: the free lists have their addresses, and are empty or nearly so."""
    made = pythons.core(version, "free_lists", arguments=(dies,))
    heap = find_heap(made.target())
    owners = find_owners(heap.target)
    truth = made.truth()
    assert {"listed", "keyed", "large", "sent"} <= truth.keys()
    for objects, rows in truth.items():
        name = objects.partition(": ")[0]
        if name in ("lost", "free"):
            continue
        above = [owners.above(hidden ^ pythons.HIDDEN) for hidden in rows]
        names = Counter(_plain(owners.name_of(each[1])).rpartition("/")[2] if each else None for each in above)
        # A word by chance may own one or two: nobody promises those.
        assert names[f"program.py:LINE main: {name}"] >= len(above) - 2, (objects, names)


@VERSIONS
@pytest.mark.parametrize("dies", ["collected", "kept"])
def test_free_lists_hold_what_is_free_and_nothing_else(version: str, dies: str) -> None:
    """Lost objects are leaks, though old slots have their addresses. Free objects and those of variables are none."""
    made = pythons.core(version, "free_lists", arguments=(dies,))
    truth = {name: [hidden ^ pythons.HIDDEN for hidden in rows] for name, rows in made.truth().items()}
    heap = find_heap(made.target())
    states = {name: Counter(_state(heap, at) for at in rows) for name, rows in truth.items()}
    free = FREE if dies == "collected" else LIVE
    assert states.pop("free") == {free: len(truth["free"])}
    assert states.pop("lost") == {DIRECT: len(truth["lost"])}
    assert states == {name: {LIVE: len(truth[name])} for name in states}
    assert {heap.block_at(at) for at in truth["lost"]} == set(heap.blocks(DIRECT))


def _state(heap: ProcessHeap, at: int) -> Optional[int]:
    block = heap.block_at(at)
    return block.state if block is not None else None


@pytest.mark.quick("_thread.allocate_lock()-malloc", "appended()-pymalloc")
@pytest.mark.parametrize("allocator", ["malloc", "pymalloc"])
@pytest.mark.parametrize("users", ["_thread.allocate_lock()", "[None]", "appended()"])
def test_what_is_left_over_in_memory_that_is_used_again_owns_nothing(
    tmp_path: Path, allocator: str, users: str
) -> None:
    """Arrays that held the same objects gave their memory to locks, lists with room for more, objects and buffers."""
    names = _owners_of_rows(tmp_path, allocator, _USED_AGAIN.replace("USERS", users))
    # A word by chance may own one or two: nobody promises those.
    assert names["__main__.rows"] >= 1990, names


@pytest.mark.quick("malloc")
@pytest.mark.parametrize("allocator", ["malloc", "pymalloc"])
def test_what_is_left_over_before_values_of_attributes_owns_nothing(tmp_path: Path, allocator: str) -> None:
    """In 3.11 the first object of a class has place for 29 values behind 32 bytes that are not all written.

    That is as much memory as arrays of 33 objects had.
    """
    names = _owners_of_rows(tmp_path, allocator, _BEFORE_VALUES)
    assert names["__main__.rows"] >= 1990, names


@pytest.mark.quick("_bisect-pymalloc")
@pytest.mark.parametrize(
    ("module", "allocator"), [("_statistics", "malloc"), ("_bisect", "malloc"), ("_bisect", "pymalloc")]
)
def test_what_is_left_over_behind_the_states_of_modules_owns_nothing(
    tmp_path: Path, module: str, allocator: str
) -> None:
    """The state of _bisect has 8 bytes. _statistics has none, and a block of malloc that says so.

    Both lie where arrays of 2 and 3 objects lay.
    """
    names = _owners_of_rows(tmp_path, allocator, _BEHIND_STATES.replace("MODULE", module))
    assert names["__main__.rows"] >= 1990, names


def _owners_of_rows(where: Path, allocator: str, program: str) -> Counter[Optional[str]]:
    """Run the program, which writes the addresses of some objects and dies. Return how many of them each owner has."""
    truth = where / "rows"
    core = kernel_core(Path("/usr/bin/python3"), where, "-c", program, env={"PYTHONMALLOC": allocator}, output=truth)
    owners = find_owners(CoreFile(str(core)))
    above = [owners.above(int(row)) for row in truth.read_text().split()]
    return Counter(owners.name_of(each[1]) if each else None for each in above)


_USED_AGAIN = """
import _thread, os
class Row:
    __slots__ = ("first",)
def appended():
    made = []
    made.append(None)
    return made
rows = [Row() for each in range(2000)]
four = [rows[each : each + 4] for each in range(1900)]
del four
users = [USERS for each in range(1900)]
for row in rows:
    print(id(row), flush=True)
del row
os.abort()
"""

_BEFORE_VALUES = """
import os
class Row:
    __slots__ = ("first",)
kinds = [type("Kind", (), {}) for each in range(1900)]
users = [None] * 1900
rows = [Row() for each in range(2000)]
arrays = [rows[each : each + 33] for each in range(1900)]
del arrays
for each in range(1900):
    users[each] = kinds[each]()
for row in rows:
    print(id(row), flush=True)
del row
os.abort()
"""

_BEHIND_STATES = """
import _imp, importlib.util, os
class Row:
    __slots__ = ("first",)
spec = importlib.util.find_spec("MODULE")
users = [importlib.util.module_from_spec(spec) for each in range(1000)]
run = _imp.exec_builtin if spec.origin == "built-in" else _imp.exec_dynamic
rows = [Row() for each in range(2000)]
arrays = [rows[each : each + length] for length in (2, 3) for each in range(1000)]
del arrays
for each in users:
    run(each)
for row in rows:
    print(id(row), flush=True)
del row
os.abort()
"""
