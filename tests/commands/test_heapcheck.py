"""heapcheck: silent on sound heaps, also of real programs.

On damaged heaps it names the damage that the program made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dmods.allocators.glibc import bins
from dmods.corefile.target import CoreFile
from dmods.heap.block import LIVE
from dmods.heap.heap import find_heap
from dmods.report import Report
from fixtures import answers, audited
from fixtures.cores import CoreSet, gcore, take
from fixtures.programs import PROGRAMS
from tests.corekit import HERE, compile_c, kernel_core

SOUND: list[dict[str, Any]] = [
    {"program": "arenas"},
    {"program": "arenas", "userland": "trixie"},
    {"program": "freed"},
    {"program": "freed", "how": "gcore"},
    {"program": "freed", "variant": "static"},
    {"program": "freed", "userland": "bullseye"},
    {"program": "freed", "userland": "sid"},
    {"program": "graph"},
    {"program": "sizes"},
    {"program": "forked"},
    {"program": "cxx"},
    *({"program": "mainarena", "mode": mode} for mode in PROGRAMS["mainarena"].modes),
]
HEADERS = ["text", "nul", "nul-flags", "smaller", "larger", "much-larger", "stale", "underflow"]


def check(path: Path, *words: str) -> Report:
    return answers.report(CoreFile(str(path)), "heapcheck", *words)


def rows_of(report: Report, name: str) -> list[dict[str, Any]]:
    return [
        dict(zip((column.name for column in table.columns), row))
        for table in report.tables
        if table.name == name
        for row in table.rows
    ]


def assert_clean(report: Report) -> None:
    assert [table.name for table in report.tables] == ["arenas"], [rows_of(report, n) for n in ("chunks", "lists")]
    assert {row["verdict"] for row in rows_of(report, "arenas")} == {"clean"}
    assert report.totals["problems"] == 0
    assert report.status == 0


# -- sound heaps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SOUND, ids=lambda case: "-".join(filter(None, case.values())))
def test_a_sound_heap_is_clean(case: dict[str, Any]) -> None:
    report = check(take(**case).core, "--fail-on-damage")
    assert_clean(report)


PYTHON = """
import json, threading, time
def churn():
    kept = []
    for i in range(60000):
        kept.append(bytearray(i * 7919 % 5000))
        if i % 3 == 0:
            kept[i * 31 % len(kept)] = None
    return kept
kept = churn()
held = []
thread = threading.Thread(target=lambda: held.append(churn()) or time.sleep(1000), daemon=True)
thread.start()
while not held:
    time.sleep(0.01)
text = json.dumps([str(i) for i in range(100000)])
print("ready", flush=True)
time.sleep(1000)
"""


def test_a_working_interpreter_is_clean(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PYTHON], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        gcore(process.pid, tmp_path / "core.1")
    finally:
        process.kill()
        process.wait()
    report = check(tmp_path / "core.1")
    assert_clean(report)
    assert int(str(report.totals["chunks"])) > 20000


def test_a_debugger_is_clean(tmp_path: Path) -> None:
    program = ["gdb", "-nx", "-q", sys.executable, "-ex", "info functions Py_Main", "-ex", "echo ready\\n"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        gcore(process.pid, tmp_path / "core.1")  # when it waits for its next command
    finally:
        process.kill()
        process.wait()
    report = check(tmp_path / "core.1")
    assert_clean(report)
    assert int(str(report.totals["chunks"])) > 5000


# -- damaged headers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", HEADERS)
@pytest.mark.parametrize("userland", ["host", "sid"])
def test_the_culprit_is_the_block_that_the_program_wrote_beyond(mode: str, userland: str) -> None:
    core = take("smash", mode=mode, userland=userland)
    facts = core.truth.facts
    report = check(core.core, "--fail-on-damage")
    (row,) = rows_of(report, "chunks")
    assert row["chunk"] + 16 == facts["victim"]
    assert row["suspect"] == facts["culprit"]
    assert row["suspect_size"] == core.truth.blocks[facts["culprit"]].usable
    assert report.totals["problems"] == report.totals["damaged_chunks"] == 1
    assert report.status == 3
    main = rows_of(report, "arenas")[0]
    assert main["verdict"] == "1 damaged chunk"


@pytest.mark.parametrize("mode", HEADERS)
def test_the_damage_ends_where_the_next_block_begins(mode: str) -> None:
    core = take("smash", mode=mode)
    (row,) = rows_of(check(core.core), "chunks")
    victim = core.truth.blocks[core.truth.facts["victim"]]
    if mode == "nul-flags":  # the size of the chunk itself is right
        assert row["resumed"] == row["chunk"]
    else:
        assert row["resumed"] + 16 == victim.address + victim.usable + 8
        assert row["extent"] == victim.usable + 8


@pytest.mark.parametrize("mode", [*HEADERS, *(f"corrupt {m}" for m in ("overrun", "overrun-zero", "overrun-free"))])
def test_all_other_blocks_are_known(mode: str) -> None:
    program, _, name = mode.rpartition(" ")
    core = take(program or "smash", mode=name)
    blocks = {block.address: block.size for block in find_heap(CoreFile(str(core.core))).index.blocks(LIVE)}
    said = {b.address: b.usable for b in core.truth.blocks.values() if b.state in ("live", "direct")}
    wrong = {address for address, usable in said.items() if blocks.get(address) != usable}
    # A size that is too small leaves a part of its block over. No other block may be lost or appear.
    assert wrong <= ({core.truth.facts["victim"]} if name == "smaller" else set())
    low, high = min(said), max(said)
    strange = [address for address in blocks.keys() - said.keys() if low < address < high]
    assert len(strange) <= (1 if name == "smaller" else 0)


def test_text_is_shown() -> None:
    report = check(take("smash", mode="text").core)
    (row,) = rows_of(report, "chunks")
    assert "go on" in row["why"]
    assert row["looks_like"].startswith("string 'overlong overlong")
    dump = rows_of(report, "bytes")
    assert 3 <= len(dump) <= 8
    assert "overlong" in "".join(line["text"] for line in dump)
    header = next(line for line in dump if line["address"] == row["chunk"])
    assert bytes.fromhex(header["bytes"])[8:] == row["value"].to_bytes(8, "little")


@pytest.mark.parametrize("mode", ["overrun", "overrun-zero", "overrun-free", "overrun-top"])
def test_blocks_overrun_by_exactly_the_header(mode: str) -> None:
    core = take("corrupt", mode=mode)
    (row,) = rows_of(check(core.core), "chunks")
    assert row["suspect"] == core.truth.facts["culprit"]
    assert row["chunk"] + 16 == core.truth.facts["victim"]


# -- damaged lists -----------------------------------------------------------------------------------------------------


def links(core: CoreSet) -> list[dict[str, Any]]:
    report = check(core.core)
    assert rows_of(report, "chunks") == []
    assert report.totals["problems"] == report.totals["damaged_links"]
    return rows_of(report, "lists")


@pytest.mark.parametrize("userland", ["host", "sid"])
@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("unlink", "not the chunk that leads here"),
        ("many", "not the chunk that leads here"),
        ("live-link", "in use"),
        ("skip", "on no list"),
    ],
)
def test_a_bad_link_in_a_bin_is_found_where_it_is(mode: str, what: str, userland: str) -> None:
    core = take("smash", mode=mode, userland=userland)
    (row,) = links(core)
    assert row["at"] + 16 == core.truth.facts["culprit"]
    assert what in row["what"]


@pytest.mark.parametrize(
    ("mode", "what"),
    [("cyclic-tcache", "cycle"), ("wild-tcache", "0x123456789010: not a chunk"), ("cyclic-fastbin", "cycle")],
)
def test_a_bad_link_in_a_cache_is_found(mode: str, what: str) -> None:
    core = take("corrupt", mode=mode)
    (row,) = links(core)
    assert what in row["what"]
    assert core.truth.blocks[row["at"]].state == "freed"
    assert ("tcache" in row["list"]) == ("tcache" in mode)


def test_wild_bins_are_bounded() -> None:
    rows = links(take("corrupt", mode="wild-bins"))
    assert len(rows) <= 50
    assert any("0x4141414141414141" in row["what"] for row in rows)


@pytest.mark.parametrize("mode", ["top", "fastbin", "tcache"])
def test_an_arena_in_use_is_noted(mode: str) -> None:
    report = check(take("inmalloc", mode=mode).core)
    assert any("locked" in note for note in report.notes) == (mode != "tcache")
    assert int(str(report.totals["problems"])) >= 1


# -- bins --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [4, 8])
def test_bins_share_out_all_sizes(word: int) -> None:
    ranges = bins.bounds(word)
    assert len(ranges) == bins.COUNT
    used = [(least, most) for least, most in ranges[bins.FIRST_SMALL :] if least <= most]
    for (_, most), (following, _) in zip(used, used[1:]):
        assert most + 16 == following
    assert used[0][0] == 4 * word
    for index, (least, most) in enumerate(ranges):
        if index >= bins.FIRST_SMALL and least <= most:
            assert bins.index_of(least, word) == bins.index_of(min(most, 1 << 24) & ~15, word) == index


def test_the_last_small_bin_is_as_in_malloc_c() -> None:
    """MIN_LARGE_SIZE is 1024 where words have 8 bytes. It is 1008 where they have 4 and malloc aligns to 16."""
    assert (bins.bounds(8)[63], bins.bounds(8)[64]) == ((1008, 1008), (1024, 1072))
    assert (bins.bounds(4)[63], bins.bounds(4)[64]) == ((992, 992), (1008, 1008))


# -- guards -----------------------------------------------------------------------------------------------------------


class Guarded(NamedTuple):
    """A core of tests/guards.c, and its lines of (state, address, requested, offset, bytes) for misused blocks."""

    core: Path
    misused: list[tuple[str, int, int, int, bytes]]


@pytest.fixture(scope="module")
def guarded_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("guards")
    return compile_c(HERE / "guards.c", where / "guards", "-O2", "-fno-builtin")


def guarded(program: Path, where: Path, options: str, *words: str) -> Guarded:
    core = kernel_core(program, where, str(where / "told"), "200", *words, env=audited.environment(options))
    lines = (line.split() for line in (where / "told").read_text().splitlines()[1:])
    return Guarded(
        core,
        [
            (state, int(address, 16), int(size), int(offset), bytes.fromhex(written))
            for state, address, size, offset, written in lines
            if written != "-"
        ],
    )


def test_overwritten_guards_name_the_block_its_owner_and_what_was_written(
    guarded_program: Path, tmp_path: Path
) -> None:
    core, misused = guarded(guarded_program, tmp_path, "audit,log=100000,guards")
    target = CoreFile(str(core))
    whole = answers.answer(target, "heapcheck", "--fail-on-damage")
    rows = answers.by_name(whole)["guards"]
    assert len(misused) == 39
    assert {int(row["block"], 16) for row in rows} == {address for _state, address, *_ in misused}
    by_block = {int(row["block"], 16): row for row in rows}
    for state, address, size, offset, written in misused:
        row = by_block[address]
        assert row["requested"] == size
        # A written byte may equal the old one.
        assert offset <= row["offset"] <= offset + 1
        assert written.endswith(bytes.fromhex(row["found"]))
        assert row["caller"].startswith("site+0x")
        assert any(frame["name"].startswith("main+") for frame in row["stack"])
        assert row["side"] == {"live": "after its end", "freed": "after its free"}[state]
        assert (row["free_stack"] is not None) == (state == "freed")
        assert bytes.fromhex(row["expected"]) != bytes.fromhex(row["found"])
    (part,) = (row for row in answers.by_name(whole)["arenas"] if row["arena"] == "guards")
    assert part["verdict"] == "39 overwritten guards"
    assert whole["totals"]["overwritten_guards"] == whole["totals"]["problems"] == 39
    assert whole["totals"]["guards_checked"] > 200
    assert whole["status"] == 3


def test_thirty_two_bytes_in_twenty_eight(guarded_program: Path, tmp_path: Path) -> None:
    core, misused = guarded(guarded_program, tmp_path, "audit,guards")
    target = CoreFile(str(core))
    address = next(address for _state, address, size, *_ in misused if size == 28)
    text = answers.text(target, "heapcheck", "-v")
    (line,) = (line for line in text.splitlines() if line.startswith(f"{address:016x}"))
    assert "after its end" in line
    assert "bbbbbbbb" in line  # the redzone
    assert "41414141" in line
    assert "AAAA" in line
    assert f"block {address:#x} was allocated by" in text
    whatis = answers.text(target, "whatis", hex(address + 3))
    assert "its guards were overwritten: 4 bytes were written beyond its 28 bytes, at offset 28: 41414141 (AAAA)" in (
        whatis
    )
    damaged = {address for _state, address, *_ in misused}
    clean = next(each.address for each in find_heap(target).records.all() if each.address not in damaged)
    assert "overwritten" not in answers.text(target, "whatis", hex(clean))


def test_guards_that_nobody_wrote_are_clean(guarded_program: Path, tmp_path: Path) -> None:
    core, misused = guarded(guarded_program, tmp_path, "audit,guards", "clean")
    assert misused == []
    report = check(core, "--fail-on-damage")
    assert_clean(report)
    assert report.totals["overwritten_guards"] == 0
    checked = report.totals["guards_checked"]
    assert isinstance(checked, int)
    assert checked > 200


def test_without_guards_nothing_is_said_of_them(guarded_program: Path, tmp_path: Path) -> None:
    report = check(guarded(guarded_program, tmp_path, "audit,log=1000", "clean").core)
    assert "guards" not in [row["arena"] for row in rows_of(report, "arenas")]
    assert report.totals["guards_checked"] is None


def test_guards_are_verified_over_tcmalloc(guarded_program: Path, tmp_path: Path) -> None:
    tcmalloc = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    env = audited.environment("audit,guards")
    env["LD_PRELOAD"] = f"{env['LD_PRELOAD']} {tcmalloc}"
    core = kernel_core(guarded_program, tmp_path, str(tmp_path / "told"), "200", env=env)
    report = check(core, "--fail-on-damage")
    assert report.totals["overwritten_guards"] == 39  # of 36 blocks in use and three freed ones
    assert report.status == 3
    assert {row["verdict"] for row in rows_of(report, "arenas")} == {"clean", "39 overwritten guards"}
