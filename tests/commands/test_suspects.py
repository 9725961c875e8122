"""`suspects`: what a person reads first. Programs lose memory in known ways (suspects.cc)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dmods.graph.suspects.candidates import _free
from dmods.graph.suspects.process_share import ProcessMemory
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core

_SESSIONS, _LEAKED = 20000, 12000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("suspects") / "suspects"
    source = HERE / "commands" / "suspects.cc"
    subprocess.run(["g++", "-g", "-O1", str(source), "-o", str(made)], check=True)
    return made


def asked(program: Path, where: Path, how: str, *words: str) -> tuple[Path, dict[str, Any]]:
    core = kernel_core(program, where, how)
    return core, answers.typed("suspects", core, *words)


def test_a_map_on_a_stack_has_its_variable_and_a_sample(program: Path, tmp_path: Path) -> None:
    core, answer = asked(program, tmp_path, "map", "--least", "1M")
    (row,) = answer["tables"][0]["rows"]
    assert row["sentence"].startswith("`main: server.by_token` keeps ")
    assert "frame" not in row["sentence"]
    assert "_M_" not in row["sentence"]
    assert f"{_SESSIONS:,} Session (one holds 'user:" in row["sentence"]
    # A node, a token that is too long for its string, and a session.
    assert row["count"] == 3 * _SESSIONS
    assert row["percent"] > 95
    # owners has the same name. The thread and the frame are in JSON, and in the text with -v.
    held = answers.typed("owners", core)["tables"][0]["rows"][0]
    assert (held["owner"], held["bytes"]) == ("main: server.by_token", row["bytes"])
    full = answers.typed("owners", core, "-v")["tables"][0]["rows"][0]["owner"]
    assert full == held["roots"][0]["name"]
    assert re.fullmatch(r"main in thread \d+ \(suspects\), frame \d+, local 'server'", full)


def test_locals_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """A function calls itself. Each of its frames has a list in a local of one name."""
    source = tmp_path / "twice.c"
    source.write_text(_TWICE)
    core = kernel_core(compile_c(source, tmp_path / "twice"), tmp_path)
    rows = [row for row in answers.typed("owners", core)["tables"][0]["rows"] if row["owner"].startswith("nested: ")]
    held = {row["count"]: row["owner"] for row in rows}
    assert set(held) == {100, 200}
    frames = {}
    for count, name in held.items():
        found = re.fullmatch(r"nested: mine\.head \(frame (\d+)\)", name)
        assert found, name
        frames[count] = int(found[1])
    assert frames[100] == frames[200] + 1  # the outer one


def test_what_leaked_comes_first_where_it_is_most(program: Path, tmp_path: Path) -> None:
    core, answer = asked(program, tmp_path, "leak", "--least", "1M")
    first, second = answer["tables"][0]["rows"]
    assert first["kind"] == "leaked"
    # A stale word may hold a few.
    assert _LEAKED - 10 <= first["count"] <= _LEAKED
    assert 57 <= first["percent"] <= 60
    totals = answers.typed("owners", core)["totals"]
    assert first["bytes"] == totals["leaked_bytes"] == answer["totals"]["leaked_bytes"]
    assert first["sentence"].startswith("59% of the heap in use has leaked (")
    assert first["address"] in first["sentence"]
    (leak,) = answers.typed("whatis", core, first["address"])["tables"][1]["rows"]
    assert leak["size"] == 504
    # The accumulation point is the vector's buffer, and its address is in the sentence.
    assert second["sentence"].startswith("`main: keep` keeps ")
    assert f"at {second['point']}" in second["sentence"]
    assert first["next"][0].startswith("findleaks")
    assert (first["confidence"], second["confidence"]) == ("certain", "possible")


def test_a_small_heap_of_a_large_process_is_told_so(program: Path, tmp_path: Path) -> None:
    """54 MB are mapped, and malloc has 2.7 MB, of which one variable holds nearly all."""
    _core, answer = asked(program, tmp_path, "elsewhere", "--least", "1M")
    assert answer["totals"]["suspects"] == 0
    assert 54 << 20 < answer["totals"]["process_bytes"] < 60 << 20
    (note,) = (note for note in answer["notes"] if "most of it is elsewhere" in note)
    assert re.search(r"the largest mapping is 0x[0-9a-f]+, 54M", note)
    (held,) = answers.by_name(answer)["largest"]
    assert held["percent"] > 90
    assert held["process_percent"] < 10


def test_free_memory_that_is_held_back(program: Path, tmp_path: Path) -> None:
    core, answer = asked(program, tmp_path, "free")
    (row,) = answer["tables"][0]["rows"]
    assert row["kind"] == "free"
    totals = answers.typed("owners", core)["totals"]
    assert row["bytes"] == totals["free_bytes"] + totals["top_bytes"]
    # 99 of 100 blocks of 104 usable bytes.
    assert row["bytes"] > 396000 * 104
    assert "free memory that the allocator holds back" in row["sentence"]
    assert row["next"][0] == "malloc_stats"


def test_free_memory_that_nobody_touched_is_no_memory_of_the_process() -> None:
    """jemalloc gives out pages that nobody writes to, and takes them back. Only touched memory counts for a process."""
    memory = ProcessMemory(2 << 20, 48 << 20, 10 << 20, 0, 0, free=30 << 20, free_touched=1 << 16)
    (found,) = _free(memory)
    assert found.share_of_process == 1 / 32
    assert not found.is_worth()


def test_the_blocks_of_one_size_are_named_where_no_type_is_known(program: Path, tmp_path: Path) -> None:
    """200 vectors hold 300 blocks each. No type is known without debug information, and no vector holds much."""
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(program)], check=True)
    _core, answer = asked(stripped, tmp_path, "sizes", "--least", "1M")
    (row,) = (row for row in answer["tables"][0]["rows"] if row["root"] is None)
    assert (row["kind"], row["count"], row["bytes"], row["confidence"]) == ("size", 60000, 60000 * 104, "possible")
    assert row["sentence"].startswith("60,000 blocks of 104 bytes take ")


def test_a_small_program_has_no_suspect(program: Path, tmp_path: Path) -> None:
    _core, answer = asked(program, tmp_path, "map")
    assert answer["totals"]["suspects"] == 0
    assert answers.by_name(answer)["largest"][0]["root"] == "`main: server.by_token`"


@pytest.mark.parametrize("size", ["", "M", "1X", "-1", "9" * 40])
def test_a_size_that_is_none(program: Path, tmp_path: Path, size: str) -> None:
    done = answers.dmods("suspects", program, "--least", size)
    assert done.returncode == 2
    assert "is not a size" in done.stderr


_TWICE = """
#include <stdlib.h>
struct node { struct node *next; long number; };
struct list { struct node *head; long count; };
__attribute__((noinline)) static void nested(long count)
{
	struct list mine = {0};
	for (long i = 0; i < count; i++) {
		struct node *made = malloc(sizeof *made);
		*made = (struct node){mine.head, i};
		mine.head = made;
		mine.count++;
	}
	asm volatile("" : : "r"(&mine) : "memory");
	if (count == 200)
		abort();
	nested(2 * count);
	asm volatile("" : : "r"(&mine) : "memory");
}
int main(void) { nested(100); }
"""
