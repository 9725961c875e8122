"""A vtable names a block only if the block has the size of its class: tests/graph/members.cc."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers
from tests.corekit import HERE, kernel_core
from tests.quick import only

_OBJECTS = {"Base": 50, "Derived": 70, "Wide": 30, "Deleter": 40, "Plain": 60}
_CHUNKS = 160  # of the deque


def dumped(where: Path, flags: str) -> Path:
    program = where / "members"
    source = HERE / "graph" / "members.cc"
    subprocess.run(["g++", *flags.split(), str(source), "-o", str(program)], check=True)
    return kernel_core(program, where)


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["type"]] = found.get(row["type"], 0) + (row["count"] or 0)
    return found


@pytest.mark.parametrize("flags", only(["-O1 -g", "-O2 -s"], ["-O1 -g", "-O2 -s", "-O0 -g", "-O0", "-O0 -s", "-O3"]))
def test_a_vtable_names_blocks_of_its_size(tmp_path: Path, flags: str) -> None:
    core = dumped(tmp_path, flags)
    rows = answers.typed("types", core, "--top", "1000")["tables"][0]["rows"]
    found = counts(rows)
    for name, count in _OBJECTS.items():
        assert found.get(name) == count, name
    # The chunks of the deque, and one vector's buffer. Another vector has objects of another class.
    assert found["Base[]"] == _CHUNKS + 1
    assert found["Other[]"] == 1
    assert "Other" not in found
    if "-g" in flags:
        assert (found["Holder"], found["Big"]) == (300, 20)
    else:
        assert found["malloc-72: begins with Base"] == 300
        assert sum(count for name, count in found.items() if name.endswith(": begins with Other")) == 20
    # One name in all commands.
    held = answers.typed("owners", core, "--by", "type", "--top", "1000")["tables"][0]["rows"]
    assert counts([row for row in held if row["how"] == "live"]) == found


def test_the_ids_of_a_list_are_different_and_mean_their_row(tmp_path: Path) -> None:
    core = dumped(tmp_path, "-O1 -g")
    rows = answers.typed("types", core, "--top", "1000")["tables"][0]["rows"]
    assert len({row["id"] for row in rows}) == len(rows)
    row = next(row for row in rows if row["type"] == "Holder")
    walked = answers.typed("walk", core, "buf", "--shape", row["id"])["tables"][0]["rows"]
    assert len(walked) == row["count"]
