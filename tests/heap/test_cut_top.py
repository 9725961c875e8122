"""A process that was stopped while malloc cut its top chunk is not damaged (cut_top.c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core


def died(where: Path, mode: str) -> tuple[CoreFile, dict[str, int]]:
    """Return the core, and what the program said of itself."""
    program = compile_c(HERE / "heap" / "cut_top.c", where / "cut_top", "-pthread", "-fno-builtin")
    core = kernel_core(program, where, str(where / "told"), mode)
    lines = (line.split() for line in (where / "told").read_text().splitlines())
    return CoreFile(str(core)), {what: int(value, 16) for what, value in lines}


@pytest.mark.parametrize("mode", ["main", "thread"])
def test_a_top_chunk_that_is_being_cut_is_not_damaged(tmp_path: Path, mode: str) -> None:
    target, told = died(tmp_path, mode)
    assert target.image().read(told["top"] + 8, 8) == bytes(8)
    check = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert (check["status"], check["totals"]["problems"], check["totals"]["contradictions"]) == (0, 0, 0)
    leaks = answers.answer(target, "findleaks")
    assert not [note for note in leaks["notes"] if "damaged" in note]
    assert [note for note in leaks["notes"] if f"just cutting its top chunk ({told['top']:#x})" in note]
    assert not [row for row in answers.by_name(answers.answer(target, "triage"))["findings"] if "damage" in row["kind"]]
    rows = {row["arena"]: row for row in answers.by_name(answers.answer(target, "malloc_stats"))["arenas"]}
    assert rows["main" if mode == "main" else "1"]["top_bytes"] == told["top_bytes"]
    assert "damaged" not in answers.text(target, "whatis", hex(told["top"] + 64))
    # The block that malloc was about to return is there.
    assert f"{told['block']:#x}+0" in answers.text(target, "whatis", hex(told["block"]))
    (row,) = (
        row
        for row in answers.by_name(answers.answer(target, "heapsizes", "--exact"))["sizes"]
        if row["least"] == told["usable"]
    )
    assert row["live_count"] + row["leaked_count"] == 1


def test_zeros_over_a_top_chunk_are_damage(tmp_path: Path) -> None:
    target, told = died(tmp_path, "zeroed")
    check = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert check["status"] == 3
    assert [int(row["chunk"], 16) for row in answers.by_name(check)["chunks"]] == [told["top"]]
    (row,) = answers.by_name(answers.answer(target, "malloc_stats"))["arenas"]
    assert row["top_bytes"] == told["top_bytes"]
