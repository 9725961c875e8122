"""`suspects` names the part that memory hangs on, the client behind an index, and pools (parts.c tells the truth)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.texts import domain_name
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core

_LIMIT = ("--least", "1M")
_PLACE = 216


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = HERE / "commands" / "parts.c"
    return compile_c(source, tmp_path_factory.mktemp("parts") / "parts", "-rdynamic", "-Wno-format-truncation")


@pytest.fixture(scope="module")
def stripped(program: Path) -> Path:
    made = program.parent / "bare" / "parts"
    made.parent.mkdir()
    subprocess.run(["strip", "-o", str(made), str(program)], check=True)
    return made


def told(program: Path, where: Path, how: str) -> tuple[CoreFile, dict[str, int]]:
    """Return the target, and what the program said of itself."""
    core = kernel_core(program, where, how, output=where / "said")
    lines = (line.split() for line in (where / "said").read_text().splitlines())
    return CoreFile(str(core)), {name: int(value) for name, value in lines}


def suspect_of(target: CoreFile) -> dict[str, Any]:
    found: dict[str, Any] = answers.by_name(answers.answer(target, "suspects", *_LIMIT))["suspects"][0]
    return found


def test_the_part_that_has_most_of_a_local_is_its_name(program: Path, tmp_path: Path) -> None:
    """93 of 100 sessions hang on one of two tables, each an array within the variable."""
    target, truth = told(program, tmp_path, "local")
    row = suspect_of(target)
    assert row["sentence"].startswith("`local: s.by_token` keeps 93% of the heap in use ")
    assert ", most of what `local: s` holds (" in row["sentence"]
    assert (row["root"], row["count"], row["bytes"]) == ("`local: s.by_token`", truth["blocks"], truth["bytes"])
    # `retained` has the same number, by another way: it divides the variable into its words.
    (held,) = (row for row in answers.by_name(answers.answer(target, "owners"))["owners"] if row["owner"] == "local: s")
    place = held["roots"][0]["address"]
    parts = answers.by_name(answers.answer(target, "retained", place, "--top", "10000"))["parts"]
    assert sum(row["bytes"] for row in parts if row["part"].startswith("s.by_token[")) == truth["bytes"]


def test_the_name_goes_on_through_blocks(program: Path, tmp_path: Path) -> None:
    target, truth = told(program, tmp_path, "pointers")
    row = suspect_of(target)
    assert row["sentence"].startswith("`srv->cache->table` (parts) keeps 100% of the heap in use ")
    # The service and the cache are two blocks more.
    assert row["count"] == truth["blocks"] + 2
    assert "one block of 40 bytes (struct service) at " in row["sentence"]


def test_the_links_of_a_list_are_no_part_of_the_name(program: Path, tmp_path: Path) -> None:
    target, _truth = told(program, tmp_path, "list")
    assert suspect_of(target)["sentence"].startswith("`srv->others` (parts) keeps ")


def test_a_function_pointer_names_a_block_without_a_type(stripped: Path, tmp_path: Path) -> None:
    target, _truth = told(stripped, tmp_path, "pointers")
    assert re.search(r"one block of 40 bytes \(with pointers to end_of_service\) at 0x", suspect_of(target)["sentence"])


@pytest.mark.parametrize(
    ("how", "name"),
    [("queued", "billing-worker-7"), ("domain", "billing-worker-7.example"), ("object", "billing-worker-7")],
)
def test_the_client_behind_an_index_is_named(stripped: Path, tmp_path: Path, how: str, name: str) -> None:
    """A store keeps 12,000 messages alive. The nodes of one client lead to nearly all, those of 19 others to 3 each."""
    target, truth = told(stripped, tmp_path, how)
    text = suspect_of(target)["sentence"]
    found = re.search(
        r"; ([\d,]+) of ([\d,]+) blocks of 104 bytes also hang on one block of .* at (0x\w+) that has '(.*?)'", text
    )
    assert found, text
    counts = [int(each.replace(",", "")) for each in found.groups()[:2]]
    assert counts == [truth["queue"], truth["blocks"]]
    assert (int(found[3], 16), found[4]) == (truth["client"], name)


def test_no_client_is_named_where_all_have_as_much(stripped: Path, tmp_path: Path) -> None:
    target, _truth = told(stripped, tmp_path, "even")
    assert "hang on" not in suspect_of(target)["sentence"]


def test_the_places_of_a_pool_are_counted(stripped: Path, tmp_path: Path) -> None:
    target, truth = told(stripped, tmp_path, "pools")
    text = suspect_of(target)["sentence"]
    found = re.search(
        r"; each has ([\d,]+) places of (\d+) bytes, about ([\d,]+) in all, of which about (\d+)% hold", text
    )
    assert found, text
    each, stride, total, used = (int(number.replace(",", "")) for number in found.groups())
    assert stride == _PLACE
    assert each == truth["bytes"] // truth["blocks"] // _PLACE
    assert abs(total - each * truth["blocks"]) <= 50  # three digits
    assert 45 <= used <= 55
    assert re.search(r" \(one holds 'record:\d+:\d+', another 'record:\d+:\d+'\)", text)


@pytest.mark.parametrize("how", ["picture", "chance"])
def test_other_blocks_have_no_places_and_no_sample(stripped: Path, tmp_path: Path, how: str) -> None:
    """The rows of a picture repeat, too. A text that one of many blocks has is chance."""
    target, truth = told(stripped, tmp_path, how)
    row = suspect_of(target)
    assert row["count"] == truth["blocks"]
    assert "places of" not in row["sentence"]
    assert "holds '" not in row["sentence"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x03www\x07example\x03com\0more", "www.example.com"),
        (b"\x07example\x03com", None),  # it does not end
        (b"\x0bexample\x03com\0", None),
        (b"\x40" + b"a" * 64 + b"\x03com\0", None),
        (b"\x03w w\x07example\0", None),
        (b"\x09localhost\0", None),  # any length with a text behind it
        (b"\0", None),
        (b"", None),
    ],
)
def test_domain_names(data: bytes, name: str | None) -> None:
    assert domain_name(data) == name
