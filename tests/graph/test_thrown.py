"""Exceptions of C++ that are kept or in flight: the type of what was thrown."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import answers
from tests.corekit import dumped_in, kernel_core
from tests.graph.typed import HERE, Told, told_in


def thrown(core: Path, told: Sequence[Told], sysroot: Optional[str] = None) -> list[tuple[str, str]]:
    """Return for each object that was thrown its type, and the name of the block that has it."""
    target = CoreFile(str(core), sysroot=sysroot)
    heap = find_heap(target)
    names: dict[int, str] = {}
    for row in answers.answer(target, "types", "--top", "1000")["tables"][0]["rows"]:
        if row["evidence"] == "exception header":
            walked = answers.answer(target, "walk", "buf", "--type", row["type"])["tables"][0]["rows"]
            names.update((int(each["address"], 16), row["type"]) for each in walked)
    found = []
    for each in told:
        if each.type == "alone":
            continue
        block = heap.block_at(each.address)
        assert block is not None
        found.append((f"exception {each.type}", names.get(block.address, "")))
    return found


@pytest.mark.parametrize("flags", [("-O1",), ("-O1", "-s")], ids=" ".join)
def test_what_was_thrown(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A fundamental type has a name of one letter in its type_info (`throw 5L`)."""
    program = tmp_path / "thrown"
    subprocess.run(["g++", *flags, str(HERE / "thrown.cc"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path)
    found = thrown(core, told_in(tmp_path))
    assert [each for each in found if each[0] != each[1]] == []
    assert len(found) == 9 * 20


def test_an_exception_is_not_the_object_itself(tmp_path: Path) -> None:
    """With debug information there are blocks of the class, too: `walk buf --type` has these alone."""
    program = tmp_path / "thrown"
    subprocess.run(["g++", "-O1", "-g", str(HERE / "thrown.cc"), "-o", str(program)], check=True)
    core = kernel_core(program, tmp_path)
    (alone,) = (each.address for each in told_in(tmp_path) if each.type == "alone")
    objects, exceptions = (
        answers.typed("walk", core, "buf", "--type", name)["tables"][0]["rows"]
        for name in ("shop::Point", "exception shop::Point")
    )
    assert [int(row["address"], 16) for row in objects] == [alone]
    assert len(exceptions) == 20


@pytest.mark.parametrize("userland", ["i386-bookworm"])
def test_what_a_program_of_32_bits_threw(userland: str) -> None:
    """Its exceptions have a header of another size, and its libraries lie in the upper half of memory."""
    with dumped_in(userland, HERE / "thrown.cc", ["g++", "-O1"]) as (core, root):
        found = thrown(core, told_in(core.parent), str(root))
    assert [each for each in found if each[0] != each[1]] == []
    assert len(found) == 9 * 20
