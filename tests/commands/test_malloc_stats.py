"""malloc_stats, compared to the byte with the process's own malloc_info, malloc_stats and mallinfo2."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dmods.allocators.glibc.usage import Usage, advice
from dmods.corefile.target import CoreFile
from dmods.report import Report
from fixtures import answers
from fixtures.cores import CoreSet, take
from fixtures.mallocinfo import MallocInfo

CASES: list[dict[str, Any]] = [
    {"program": "arenas"},
    {"program": "freed"},
    {"program": "freed", "how": "gcore"},
    {"program": "freed", "variant": "static"},
    {"program": "freed", "userland": "bullseye"},
    {"program": "freed", "userland": "sid"},
    {"program": "sizes"},
    {"program": "huge"},
    {"program": "mainarena", "mode": "foreign-sbrk"},
    {"program": "mainarena", "mode": "mmap-fallback"},
    {"program": "mainarena", "mode": "no-brk"},
    {"program": "mainarena", "mode": "mmap-all"},
    {"program": "mainarena", "mode": "trimmed"},
    {"program": "smash", "mode": "many"},
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case.values()))
def core(request: pytest.FixtureRequest) -> CoreSet:
    return take(**request.param)


def report_of(core: CoreSet, *words: str) -> Report:
    return answers.report(CoreFile(str(core.core)), "malloc_stats", *words)


def rows_of(report: Report) -> list[dict[str, Any]]:
    table = report.tables[0]
    return [dict(zip((column.name for column in table.columns), row)) for row in table.rows]


def test_every_arena_is_as_malloc_info_says(core: CoreSet) -> None:
    said = MallocInfo.parse(core.truth.malloc_info)
    rows = rows_of(report_of(core))
    assert [(r["system_bytes"], r["in_use_bytes"]) for r in rows] == [(a.system, a.in_use) for a in said.arenas]
    assert [r["free_bytes"] + r["top_bytes"] for r in rows] == [arena.free for arena in said.arenas]
    assert [r["fastbin_chunks"] for r in rows] == [arena.fast_chunks for arena in said.arenas]
    assert [r["bin_chunks"] for r in rows] == [arena.binned for arena in said.arenas]


def test_totals_are_as_mallinfo_says(core: CoreSet) -> None:
    report, said = report_of(core), core.truth.mallinfo
    # Before 2.33 there is only mallinfo, whose fields are ints.
    wrap = (1 << 64) if core.truth.program["glibc"] >= "2.33" else (1 << 32)
    totals = {name: value % wrap for name, value in report.totals.items() if isinstance(value, int)}
    assert totals["arena_bytes"] == said["arena"]
    assert totals["mmapped_count"] == said["hblks"]
    assert totals["mmapped_bytes"] == said["hblkhd"]
    assert totals["free_bytes"] + totals["top_bytes"] == said["fordblks"]
    assert (totals["in_use_bytes"] - totals["mmapped_bytes"]) % wrap == said["uordblks"]
    assert sum(row["fastbin_bytes"] for row in rows_of(report)) == said["fsmblks"]
    assert rows_of(report)[0]["top_bytes"] == said["keepcost"]


def test_the_text_is_malloc_stats_own(core: CoreSet) -> None:
    lines = [str(row[0]) for row in report_of(core, "--glibc").tables[0].rows]
    said = core.truth.malloc_stats.splitlines()
    assert len(lines) == len(said)
    for ours, theirs in zip(lines, said):
        if ours != theirs:  # glibc counts in unsigned int
            numbers = [int(re.findall(r"\d+", line)[-1]) for line in (ours, theirs)]
            assert numbers[0] >= 1 << 32
            assert numbers[0] % (1 << 32) == numbers[1]
            assert ours.split("=")[0] == theirs.split("=")[0]


def test_totals_hold_past_4_gib() -> None:
    core = take("huge")
    report = report_of(core)
    asked = sum(block.size for block in core.truth.blocks.values())
    assert asked > 1 << 32
    assert isinstance(report.totals["in_use_bytes"], int)
    assert 0 < report.totals["in_use_bytes"] - asked < 1 << 20


def test_cached_chunks_are_those_the_program_freed() -> None:
    """``freed`` frees fourteen blocks of each size in each living arena.

    A tcache keeps seven of each size up to 1032.
    """
    core = take("freed")
    said = [block for block in core.truth.blocks.values() if block.state == "freed"]
    sizes = {block.usable for block in said if block.usable <= 1032}
    rows = rows_of(report_of(core))
    assert [row["cached_chunks"] for row in rows] == [7 * len(sizes), 0, 7 * len(sizes)]
    assert rows[0]["cached_bytes"] == 7 * sum(size + 8 for size in sizes)


def test_a_free_chunk_that_no_bin_knows_is_noted() -> None:
    core = take("smash", mode="skip")
    missing = next(b for b in core.truth.blocks.values() if b.address == core.truth.facts["culprit"])
    row = rows_of(report_of(core))[0]
    notes = [note for note in report_of(core).notes if "its bins hold" in note]
    assert notes == [
        f"arena main: its bins hold {row['bin_chunks']} chunks ({row['bin_bytes']} bytes), its memory has "
        f"{row['bin_chunks'] + 1} free ones ({row['bin_bytes'] + missing.usable + 8} bytes): `heapcheck` looks closer"
    ]


def usage(main: bool, system: int, free: int, top: int) -> Usage:
    return Usage("main" if main else "1", 0, main, system, system, top, free, 1, 0, 0, 0, 0, 1, 1)


def test_advice_comes_with_much_unused_memory_only() -> None:
    mib = 1 << 20
    assert list(advice([usage(True, 900 * mib, 10 * mib, mib), usage(False, 40 * mib, 39 * mib, 0)])) == []
    (arenas,) = advice([usage(True, 900 * mib, 0, 0), usage(False, 400 * mib, 200 * mib, 100 * mib)])
    assert "MALLOC_ARENA_MAX" in arenas
    assert f"hold {400 * mib} bytes and use {100 * mib}" in arenas
    (trim,) = advice([usage(True, 900 * mib, 700 * mib, 0)])
    assert "malloc_trim" in trim
    assert str(700 * mib) in trim


def test_a_process_without_malloc_has_a_note() -> None:
    report = report_of(take("freestanding", variant="static"))
    assert report.tables == []
    assert report.notes[0].startswith("no heap")
