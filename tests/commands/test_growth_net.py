"""growth, where the blocks of a cache come from two call sites: tests/commands/refilled.c says what it does."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import answers, audited
from fixtures.cores import check_core_pattern
from fixtures.limits import HANG
from tests.corekit import HERE, compile_c

_ITEM, _NOTE = 136, 56  # usable bytes
_ITEMS, _ROUND, _NOTES = 999, 333, 100


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "commands" / "refilled.c", tmp_path_factory.mktemp("refilled") / "refilled")


@cache
def played(program: Path, *words: str) -> list[Path]:
    where = program.parent / "-".join(("cores", *words))
    where.mkdir()
    check_core_pattern()
    script = 'ulimit -c unlimited; exec "$@"'
    environ = {**os.environ, **audited.environment("audit")}
    command = ["sh", "-c", script, "sh", str(program), *words]
    subprocess.run(command, cwd=where, check=True, timeout=HANG, env=environ)
    return [where / f"core.{number}" for number in range(3)]


def findings(answer: dict[str, Any]) -> list[str]:
    return [row["finding"] for row in answers.by_name(answer)["findings"]]


def growth_of(answer: dict[str, Any], text: str) -> int:
    return sum(row["growth_bytes"] for row in answers.by_name(answer)["growth"] if text in row["key"])


def test_a_cache_that_two_functions_fill_is_no_leak(program: Path) -> None:
    """Only the notes leak. What replaces items is no suspect, and a note says why. With two cores, too."""
    for cores in (played(program), played(program)[:2]):
        answer = answers.typed("growth", *cores)
        rounds = len(cores) - 1
        assert growth_of(answer, "refresh") == rounds * _ROUND * _ITEM == -growth_of(answer, "fill")
        (finding,) = findings(answer)
        assert finding.startswith("What keep+0x")
        assert f" grew by {rounds * _NOTES * _NOTE} bytes" in finding
        (note,) = (note for note in answer["notes"] if "replaces" in note)
        assert f"grew by {rounds * _ROUND * _ITEM} bytes, and its type by 0 in all" in note


def test_what_is_replaced_and_not_freed_is_a_leak(program: Path) -> None:
    answer = answers.typed("growth", *played(program, "leak"))
    first, second = findings(answer)
    assert first.startswith("What refresh+0x")
    assert second.startswith("What keep+0x")
    assert not [note for note in answer["notes"] if "replaces" in note]


def test_shapes_add_up_what_blocks_hold(program: Path) -> None:
    """The items are of one shape, whichever function made them."""
    answer = answers.typed("growth", *played(program), "--by", "shape", "--top", "100")
    rows = answers.by_name(answer)["growth"]
    (items,) = (row for row in rows if "the text" in row["key"])
    assert (items["old_count"], items["now_count"], items["growth_bytes"]) == (_ITEMS, _ITEMS, 0)
    (notes,) = (row for row in rows if "a note" in row["key"])
    assert (notes["growth_count"], notes["growth_bytes"]) == (2 * _NOTES, 2 * _NOTES * _NOTE)
    assert findings(answer)[0].startswith("Blocks of shape malloc-56: ")
