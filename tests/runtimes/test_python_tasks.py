"""The tasks of asyncio, compared with what asyncio and the coroutines said at the instant before the process died."""

from __future__ import annotations

import contextlib
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.errors import UserError
from dmods.runtimes.python.find import find_python
from dmods.runtimes.python.tasks import task_at
from fixtures import answers, pythons

VERSIONS = pytest.mark.parametrize(
    "version",
    [
        "host",
        *(pytest.param(each, marks=pytest.mark.thorough("it needs Debian's Pythons")) for each in pythons.VERSIONS),
    ],
)


@pytest.mark.quick("C-host")
@VERSIONS
@pytest.mark.parametrize("kind", ["C", "pure"])
def test_tasks_wait_where_python_says(version: str, kind: str) -> None:
    """The tasks are those of _asyncio, or those of asyncio in Python."""
    made = pythons.core(version, "tasks", arguments=["pure"] if kind == "pure" else [])
    truth = made.truth()
    shown = answers.typed("pystack", *made.argv(), "--tasks")
    rows = answers.by_name(shown)["tasks"]
    ours = [(row["name"], [[f["file"], f["line"], f["function"]] for f in row["frames"]][::-1]) for row in rows]
    assert sorted(ours) == sorted((each["name"], each["chain"]) for each in truth["tasks"])
    assert len(ours) > 30
    _check_groups(shown, truth)
    # Task.get_stack() has the outermost frame.
    outermost = sorted((row[0], row[1][:1]) for row in ours)
    assert outermost == sorted((each["name"], each["stack"]) for each in truth["tasks"])
    by_name = {row["name"]: row for row in rows}
    assert by_name[truth["running"]]["state"] == "runs"
    assert by_name["new"]["state"] == "has not begun"
    assert {row["state"] for name, row in by_name.items() if name not in (truth["running"], "new")} == {"waits"}
    assert "task 'leaf'" in {row["waits_for"] for row in rows}
    types = answers.by_name(answers.typed("pyobjects", *made.argv(), "--top", 100000))["types"]
    counts = {row["type"]: row["count"] for row in types}
    assert counts["Task" if kind == "pure" else "_asyncio.Task"] == len(rows) + 2
    # A task that returned, and one that raised.
    assert shown["totals"]["done"] == 2


def _check_groups(shown: Any, truth: Any) -> None:
    """Tasks that wait at the same lines are one group, and each task is in one."""
    by_chain: Counter[str] = Counter()
    for row in answers.by_name(shown)["groups"]:
        assert row["count"] == len(row["tasks"])
        by_chain[str([[f["file"], f["line"], f["function"]] for f in row["frames"]][::-1])] += row["count"]
    assert by_chain == Counter(str(each["chain"]) for each in truth["tasks"])
    counts = [row["count"] for row in answers.by_name(shown)["groups"]]
    assert counts == sorted(counts, reverse=True)
    # The tasks differ in what they wait for, too: not in its address.
    assert len(counts) < len(truth["tasks"])
    assert counts[0] > 10


def test_text_has_the_lines(tmp_path: Path) -> None:
    made = pythons.core("host", "tasks")
    printed = answers.printed("pystack", *made.argv(), "--tasks", "--limit", "2")
    assert "program.py:" in printed
    assert "\n2 tasks (leaf 0x" in printed
    assert "task new (0x" in printed
    assert "more frames: --limit)" in printed


@pytest.mark.thorough("it reads the heap twenty times")
def test_damaged_tasks_give_an_answer(tmp_path: Path) -> None:
    made = pythons.core("host", "tasks")
    target = made.target()
    python = find_python(target).python
    assert python is not None
    places = []
    for row in answers.by_name(answers.typed("pystack", *made.argv(), "--tasks"))["tasks"]:
        task = task_at(python, int(row["task"], 16))
        assert task is not None
        places += [task.address, *(frame.address - 72 for frame in task.chain.frames)]
    offsets = [offset for at in places if (offset := made.place(at)) is not None]
    data, dice = bytearray(made.core.read_bytes()), random.Random(5)
    for _ in range(20):
        changed = bytearray(data)
        for _ in range(6):
            offset = dice.choice(offsets) + 8 * dice.randrange(30)
            value = dice.choice([0, 1, 1 << 63, (1 << 64) - 1, dice.choice(places), dice.getrandbits(47)])
            struct.pack_into("<Q", changed, offset, value)
        (tmp_path / "core").write_bytes(changed)
        with contextlib.suppress(UserError):
            answers.answer(CoreFile(str(tmp_path / "core")), "pystack", "--tasks")
