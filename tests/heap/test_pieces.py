"""Blocks whose own mapping the kernel has cut in pieces, as NumPy's advice on huge pages does (tests/heap/pieces.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dmods.corefile.live.picture import open_process
from dmods.corefile.target import CoreFile
from fixtures import answers
from fixtures.cores import gcore
from tests.corekit import HERE, compile_c, kernel_core
from tests.quick import only

_BLOCKS, _SIZE, _STEP = 20, 1 << 20, 16 * 4096  # as the source has them
_WAYS = ("", "advise", "fork", "lock", "dump", "protect", "guard", "file")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "heap" / "pieces.c", tmp_path_factory.mktemp("pieces") / "pieces")


def check(target: CoreFile) -> None:
    leaks = answers.answer(target, "findleaks")
    lost = [_SIZE + number * _STEP for number in range(0, _BLOCKS, 2)]
    assert leaks["totals"]["direct_count"] == leaks["totals"]["indirect_count"] == len(lost)  # each with a small one
    # The size of a mapping is a multiple of a page.
    assert sorted(row["size"] & ~4095 for row in answers.by_name(leaks)["oversized"]) == lost
    assert answers.answer(target, "heapcheck")["totals"]["problems"] == 0
    # The pages that nobody can write, and those of the file, are the blocks' all the same.
    kinds = {row["kind"]: row["bytes"] for row in answers.by_name(answers.answer(target, "maps"))["kinds"]}
    owners = answers.by_name(answers.answer(target, "owners"))["owners"]
    assert sum(row["bytes"] for row in owners) == kinds["heap"] == heap_bytes(target)
    triage = answers.by_name(answers.answer(target, "triage"))
    assert {row["kind"] for row in triage["findings"]} <= {"leak", "abort"}


def heap_bytes(target: CoreFile) -> int:
    """Return the bytes of the heap by the totals that all commands have."""
    memory = answers.answer(target, "malloc_stats")["totals"]["memory"]
    assert memory["own_bytes"] > 0
    return int(memory["heap_bytes"])


@pytest.mark.parametrize("how", only(["advise", "protect", "file"], _WAYS))
def test_they_are_found_in_a_core_of_the_kernel(program: Path, tmp_path: Path, how: str) -> None:
    target = CoreFile(str(kernel_core(program, tmp_path, how)))
    check(target)
    notes = answers.answer(target, "findleaks")["notes"]
    assert len(notes) == (2 if how == "dump" else 0)  # 20 times 16 pages
    assert all("1310720 " in note and "bytes of the heap are not in the dump" in note for note in notes)


@pytest.mark.parametrize("how", only(["advise"], ["advise", "guard", "file"]))
def test_they_are_found_by_gcore_and_in_a_live_process(program: Path, tmp_path: Path, how: str) -> None:
    with subprocess.Popen([program, how, "wait"], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        live = open_process(started.pid)
        gcore(started.pid, tmp_path / "core")
        started.kill()
    check(live)
    check(CoreFile(str(tmp_path / "core")))
