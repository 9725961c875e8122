"""Damage of the heap, compared with what the program (tests/damaged.c) said of it before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from dmods.heap.verdict import NO_VERDICT
from fixtures import answers, audited, cores
from tests.corekit import HERE, compile_c, kernel_core


class Damaged(NamedTuple):
    core: Path
    told: dict[str, int]


def damaged(where: Path, mode: str, *flags: str, options: str = "") -> Damaged:
    program = compile_c(HERE / "damaged.c", where / "damaged", "-pthread", "-fno-builtin", *flags)
    core = kernel_core(program, where, str(where / "told"), mode, env=audited.environment(options) if options else None)
    lines = (line.split() for line in (where / "told").read_text().splitlines())
    return Damaged(core, {what: int(value, 16) for what, value in lines})


# -- the top chunk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sound", "top-ones", "top-text", "top-far", "top-ones static"])
def test_a_top_chunk_of_an_impossible_size_claims_nothing(tmp_path: Path, mode: str) -> None:
    name, *static = mode.split()
    core, told = damaged(tmp_path, name, *(f"-{each}" for each in static))
    target = CoreFile(str(core))
    stats = answers.answer(target, "malloc_stats")
    totals = stats["totals"]
    assert (totals["arena_bytes"], totals["in_use_bytes"], totals["top_bytes"]) == (
        told["arena"],
        told["uordblks"],
        told["keepcost"],
    )
    noted = [note for note in stats["notes"] if "size field of its top chunk is damaged" in note]
    assert len(noted) == (name != "sound")
    code = answers.text(target, "whatis", hex(told["abort"]))
    assert "top chunk" not in code
    assert "abort" in code
    inside = answers.text(target, "whatis", hex(told["top"] + 64)).splitlines()[0]
    assert f"in the top chunk of arena main ({told['top']:#x}+40): {told['keepcost']} bytes, free" in inside
    assert ("its size field is damaged" in inside) == (name != "sound")
    assert "top chunk" not in answers.text(target, "panicinfo")
    check = answers.answer(target, "heapcheck", "--fail-on-damage")
    assert check["status"] == (3 if name != "sound" else 0)
    chunks = answers.by_name(check).get("chunks", [])
    found = [(int(row["chunk"], 16), int(row["suspect"], 16), row["suspect_size"]) for row in chunks]
    assert found == ([(told["top"], told["last"], told["usable"])] if name != "sound" else [])


def test_the_top_chunk_of_a_thread_arena_ends_with_its_heap(tmp_path: Path) -> None:
    core, told = damaged(tmp_path, "thread-top")
    target = CoreFile(str(core))
    (row,) = answers.by_name(answers.answer(target, "heapcheck"))["chunks"]
    assert (int(row["chunk"], 16), int(row["suspect"], 16)) == (told["top"], told["last"])
    _main, thread = answers.by_name(answers.answer(target, "malloc_stats"))["arenas"]
    assert 0 < thread["top_bytes"] < thread["system_bytes"]
    assert thread["in_use_bytes"] == thread["system_bytes"] - thread["top_bytes"] - thread["free_bytes"]
    assert "top chunk" not in answers.text(target, "panicinfo")


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["under-text", "under-numbers", "under-8", "under-free", "over-text", "over-24"])
def test_the_culprit_is_the_block_at_fault(tmp_path: Path, mode: str) -> None:
    core, told = damaged(tmp_path, mode)
    check = answers.answer(CoreFile(str(core)), "heapcheck")
    (row,) = answers.by_name(check)["chunks"]
    assert int(row["chunk"], 16) == told["victim"] - 16
    assert int(row["suspect"], 16) == told["culprit"]
    assert row["why"].startswith("written before its start") == mode.startswith("under")


@pytest.mark.parametrize("mode", ["under-text", "under-numbers", "under-8", "over-24"])
def test_the_guard_behind_a_block_speaks_for_it(tmp_path: Path, mode: str) -> None:
    core, told = damaged(tmp_path, mode, options="audit,guards")
    target = CoreFile(str(core))
    tables = answers.by_name(answers.answer(target, "heapcheck"))
    (row,) = tables["chunks"]
    assert int(row["chunk"], 16) == told["victim"] - 16
    assert int(row["suspect"], 16) == told["culprit"]
    blamed = [int(each["block"], 16) for each in tables.get("guards", []) if each["side"] == "after its end"]
    assert blamed == ([told["culprit"]] if mode == "over-24" else [])


# -- truncated dumps ---------------------------------------------------------------------------------------------------

CUTS = [2, 45, 80, 95, 99]  # percent


@pytest.mark.quick("arenas-dynamic")
@pytest.mark.parametrize(("program", "variant"), [("freed", "static"), ("arenas", "dynamic"), ("tcstats", "dynamic")])
def test_what_is_not_in_the_dump_is_not_damaged(tmp_path: Path, program: str, variant: str) -> None:
    """Each whole core is clean. Of tcstats, the dump lacks megabytes in one piece."""
    whole = cores.take(program, variant=variant).core
    cut = tmp_path / "core"
    seen = []
    for percent in CUTS:
        for more in (0, 9):  # a cut within a header, too
            subprocess.run(["cp", "--sparse=always", whole, cut], check=True)
            os.truncate(cut, whole.stat().st_size * percent // 100 + more)
            target = CoreFile(str(cut))
            check = answers.report(target, "heapcheck", "--fail-on-damage")
            assert (percent, more, check.totals.get("problems", 0)) == (percent, more, 0)
            assert check.status in (0, NO_VERDICT)
            if check.status == 0:
                assert any("the verdict is partial" in note for note in check.notes) or not find_heap(target).unseen
            damage = [note for note in find_heap(target).notes if "damaged" in note]
            assert damage == []
            seen.append(check.status)
    assert seen[0] == NO_VERDICT
    assert seen[-1] == 0


def test_damage_is_found_in_what_a_truncated_dump_has(tmp_path: Path) -> None:
    whole = cores.take("smash", variant="static", mode="text")
    cut = tmp_path / "core"
    subprocess.run(["cp", "--sparse=always", whole.core, cut], check=True)
    header = whole.truth.facts["victim"] - 16
    with whole.core.open("rb") as stream:
        segments = [each.header for each in ELFFile(stream).iter_segments() if each.header.p_type == "PT_LOAD"]
    load = next(each for each in segments if each.p_vaddr <= header < each.p_vaddr + each.p_filesz)
    os.truncate(cut, load.p_offset + header - load.p_vaddr + 1000)
    (row,) = answers.by_name(answers.answer(CoreFile(str(cut)), "heapcheck"))["chunks"]
    assert int(row["suspect"], 16) == whole.truth.facts["culprit"]
