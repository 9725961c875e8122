"""The buffers of string streams, without debug information, compared with what a program says of its blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.graph.types.block_kinds import find_types
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from fixtures import answers
from tests.corekit import kernel_core
from tests.graph.typed import HERE, Told, told_in

_EVIDENCE = "std::stringbuf"


def died(where: Path, command: Sequence[str]) -> tuple[CoreFile, list[Told]]:
    program = where / "stringbufs"
    subprocess.run([*command, str(HERE / "stringbufs.cc"), "-o", str(program)], check=True)
    return CoreFile(str(kernel_core(program, where))), told_in(where)


def check(target: CoreFile, told: list[Told], unknown: str = "-") -> None:
    """Every buffer has its type, but for those of the type ``unknown``; and nothing else is called a buffer."""
    types, said = find_types(target), dict[int, str]()
    for row in types.rows():
        if row.name.evidence == _EVIDENCE:
            assert row.name.confidence == "likely"
            said.update(dict.fromkeys(types.addresses(row.kinds, (LIVE, DIRECT, INDIRECT)), row.name.text))
    assert said == {block.address: block.type for block in told if block.type not in ("-", unknown)}
    assert {"char[]", "wchar_t[]", "-"} == {block.type for block in told}
    # The sizes differ: from some characters to thousands.
    assert len({block.size for block in told if block.type == "char[]"}) > 20


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("-O0",), marks=pytest.mark.thorough("it takes several seconds to compile")),
        pytest.param(("-O2", "-s"), id="stripped"),
        pytest.param(("-O2", "-static-libstdc++"), marks=pytest.mark.thorough("as the one before"), id="static"),
        pytest.param(("-O2", "-no-pie"), marks=pytest.mark.thorough("as the one before"), id="no-pie"),
    ],
)
def test_a_buffer_is_known_by_its_stream(tmp_path: Path, flags: Sequence[str]) -> None:
    target, told = died(tmp_path, ["g++", "-std=c++17", *flags])
    check(target, told)
    # whattype says so of one block, typegraph of all.
    buffer = next(block for block in told if block.type == "wchar_t[]")
    (row,) = answers.answer(target, "whattype", f"{buffer.address:#x}")["tables"][0]["rows"]
    assert (row["type"], row["evidence"], row["confidence"]) == ("wchar_t[]", _EVIDENCE, "likely")
    rows = {row["evidence"]: row for row in answers.answer(target, "typegraph")["tables"][0]["rows"]}
    buffers = [block for block in told if block.type != "-"]
    assert (rows[_EVIDENCE]["count"], rows[_EVIDENCE]["bytes"]) == (len(buffers), sum(each.size for each in buffers))
    text = next(block for block in told if block.type == "-")
    (row,) = answers.answer(target, "whattype", f"{text.address:#x}")["tables"][0]["rows"]
    assert row["type"] == "not known"


@pytest.mark.thorough("it downloads clang and libc++")
@pytest.mark.parametrize(("flags", "unknown"), [(("-O1",), "-"), (("-O2", "-s"), "wchar_t[]")], ids=["", "stripped"])
def test_a_buffer_of_libcxx(tmp_path: Path, flags: Sequence[str], unknown: str) -> None:
    """The library has no vtable of std::wstringbuf: the program has one, and no symbol shows it if it is stripped."""
    from fixtures import libcxx

    check(*died(tmp_path, [*libcxx.compiler(), "-std=c++17", *flags]), unknown)


@pytest.mark.thorough("it takes several seconds to compile")
def test_debug_information_agrees(tmp_path: Path) -> None:
    """It may name a buffer first: by the type of the stream's string."""
    target, told = died(tmp_path, ["g++", "-std=c++17", "-O1", "-g"])
    known = [block for block in told[:: len(told) // 20] if block.type != "-"]
    assert known
    for block in known:
        (row,) = answers.answer(target, "whattype", f"{block.address:#x}")["tables"][0]["rows"]
        assert row["type"] == block.type
