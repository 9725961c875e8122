"""`suspects` names the entry of a container that has most of the memory, by the entry's own text (entries.cc)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core

_ENTRY = re.compile(r", (?:9\d|100)% of it under the entry '([^']*)' at (0x[0-9a-f]+)")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("entries") / "entries"
    subprocess.run(["g++", "-g", "-O1", str(HERE / "commands" / "entries.cc"), "-o", str(made)], check=True)
    return made


def asked(program: Path, where: Path, how: str) -> tuple[dict[str, Any], Path, int]:
    """Return the only suspect, the core, and the address that the program printed of its large entry."""
    said = where / "said"
    core = kernel_core(program, where, how, output=said)
    (row,) = answers.typed("suspects", core, "--least", "1M")["tables"][0]["rows"]
    found = re.search(r"entry (0x[0-9a-f]+)", said.read_text())
    assert found is not None
    return row, core, int(found[1], 16)


@pytest.mark.quick("hash-tenant-77-typed", "map-tenant-77-stripped")
@pytest.mark.parametrize("stripped", [False, True], ids=["typed", "stripped"])
@pytest.mark.parametrize(
    ("how", "name"),
    [("hash", "tenant-77"), ("long", "tenant-77-whose-name-is-no-short-one"), ("map", "tenant-77")],
)
def test_the_entry_with_most_of_the_memory_has_its_key(
    program: Path, tmp_path: Path, how: str, name: str, stripped: bool
) -> None:
    if stripped:
        subprocess.run(["strip", "-o", str(tmp_path / "stripped"), str(program)], check=True)
        program = tmp_path / "stripped"
    row, core, session = asked(program, tmp_path, how)
    found = _ENTRY.search(row["sentence"])
    assert found is not None, row["sentence"]
    assert found[1] == name
    # The node of the container is the block that the session lies in.
    block = answers.typed("whatis", core, hex(session))["tables"][1]["rows"][0]
    assert block["block"] == found[2]


@pytest.mark.parametrize("how", ["chained", "same-size"])
def test_the_entry_of_a_table_of_chains(program: Path, tmp_path: Path, how: str) -> None:
    """The items of an entry may have the size of the entries."""
    row, _core, entry = asked(program, tmp_path, how)
    found = _ENTRY.search(row["sentence"])
    assert found is not None, row["sentence"]
    assert (found[1], int(found[2], 16)) == ("tenant-77", entry)


@pytest.mark.quick("slot")
@pytest.mark.parametrize("how", ["slot", "page"])
def test_an_address_that_looks_like_text_is_no_key(program: Path, tmp_path: Path, how: str) -> None:
    """Before its key, each entry leads to or has the address 0x414141414040, the text "@@AAAA"."""
    row, core, entry = asked(program, tmp_path, how)
    found = _ENTRY.search(row["sentence"])
    assert found is not None, row["sentence"]
    assert (found[1], int(found[2], 16)) == ("tenant-77", entry)
    assert "@@AAAA" not in row["sentence"]
    # The second word of the entry leads to the slot. `whatis` does not call that a string.
    block = int.from_bytes(CoreFile(str(core)).read(entry + 8, 8), "little") if how == "slot" else entry
    shown = answers.by_name(answers.typed("whatis", core, hex(block)))["block"]
    assert "@@AAAA" not in str(shown)


def test_no_entry_is_named_where_all_have_as_much(program: Path, tmp_path: Path) -> None:
    row, _core, _entry = asked(program, tmp_path, "even")
    assert "entry" not in row["sentence"]


def test_the_nodes_of_one_list_are_no_entries(tmp_path: Path) -> None:
    """Each request has a text of its own, and keeps the requests behind it alive."""
    program = compile_c(HERE / "commands" / "holds.c", tmp_path / "holds", "-pthread")
    core = kernel_core(program, tmp_path, "queue", output=tmp_path / "said")
    (row,) = answers.typed("suspects", core, "--least", "2M")["tables"][0]["rows"]
    assert "entry" not in row["sentence"]
