"""The bench: its heaps are true (LeakSanitizer agrees), findleaks finds the leaks, and the goals are judged right."""

from __future__ import annotations

import json
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from fixtures import answers
from tools.bench import __main__ as bench
from tools.bench import beside, debug, dumps, dwarf, goals, heaps, large, measure, start

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "tools" / "bench"
ANSWER = ("direct_count", "direct_bytes", "indirect_count", "indirect_bytes")
BLOCKS = 20_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> heaps.Cache:
    return heaps.Cache(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def leak_sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the generator with LeakSanitizer.

    It ends with exit() instead of abort(), because LeakSanitizer looks at exit.
    """
    folder = tmp_path_factory.mktemp("lsan")
    (folder / "wrap.c").write_text("#include <stdlib.h>\nvoid __wrap_abort(void) { exit(0); }\n")
    program = folder / "heapgen"
    options = ["-O2", "-fsanitize=leak", "-pthread", "-Wl,--wrap=abort"]
    subprocess.run(["gcc", *options, "-o", program, BENCH / "heapgen.c", folder / "wrap.c"], check=True)
    return program


@pytest.mark.quick("mixed", "graph")
@pytest.mark.parametrize("shape", heaps.SHAPES)
def test_leak_sanitizer_agrees_with_the_truth(leak_sanitized: Path, shape: str, tmp_path: Path) -> None:
    # LeakSanitizer lists at most 5000 leaks. In `leaky`, half of 8000 blocks are leaked.
    done = subprocess.run([leak_sanitized, shape, "8000", tmp_path], capture_output=True, text=True, check=False)
    truth = json.loads(done.stdout)
    found = re.findall(r"^(Direct|Indirect) leak of (\d+) byte\(s\) in (\d+) object", done.stderr, re.M)
    count = sum(int(objects) for _, _, objects in found)
    size = sum(int(size) for _, size, _ in found)
    assert count == truth["direct_count"] + truth["indirect_count"] > 0
    assert size == truth["direct_bytes"] + truth["indirect_bytes"]
    if shape not in ("mixed", "leaky"):  # these have rings, and LeakSanitizer calls every block of a ring indirect
        direct = sum(int(objects) for kind, _, objects in found if kind == "Direct")
        assert direct == truth["direct_count"]


@pytest.mark.quick("graph", "leaky")
@pytest.mark.parametrize("shape", heaps.SHAPES)
def test_findleaks_finds_the_truth(cache: heaps.Cache, shape: str) -> None:
    heap = cache.get(shape, BLOCKS)
    totals = answers.typed("findleaks", heap.core)["totals"]
    assert {key: totals[key] for key in ANSWER} == {key: heap.truth[key] for key in ANSWER}


@pytest.mark.parametrize("shape", ["mixed", "tables", "graph"])
def test_owners_has_a_line_for_every_byte(cache: heaps.Cache, shape: str) -> None:
    command = [sys.executable, "-m", "dmods"]
    assert beside.wrong(command, "owners", cache.get(shape, BLOCKS)) == []


@pytest.mark.parametrize("name", ["types", "growth"])
def test_every_block_has_a_type_and_none_is_new(cache: heaps.Cache, name: str) -> None:
    command = [sys.executable, "-m", "dmods"]
    assert beside.wrong(command, name, cache.get("mixed", BLOCKS)) == []


def test_singly_and_doubly_are_the_same_heap(cache: heaps.Cache) -> None:
    singly, doubly = cache.get("singly", BLOCKS).truth, cache.get("doubly", BLOCKS).truth
    same = ("blocks", "bytes", "freed", "mapped", *ANSWER)
    assert {key: singly[key] for key in same} == {key: doubly[key] for key in same}


def test_every_thread_has_its_own_arena(cache: heaps.Cache) -> None:
    """Four thread heaps begin with a heap_info whose ar_ptr is just behind it. The fifth arena is the brk heap."""
    core = cache.get("mixed", BLOCKS).core.read_bytes()
    headers, entry_size, count = (*struct.unpack_from("<Q", core, 32), *struct.unpack_from("<HH", core, 54))
    arenas = 0
    for index in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", core, headers + index * entry_size)
        if kind == 1 and size > 4096 and address % (64 << 20) == 0:
            arenas += 0x20 <= struct.unpack_from("<Q", core, offset)[0] - address <= 0x30
    assert arenas == 4


def test_limit_counts_the_words_in_range(cache: heaps.Cache, tmp_path: Path) -> None:
    low, high = 1 << 62, (1 << 63) + 3  # across the sign bit, where a signed comparison would err
    words = [0, low - 1, low, low + 1, high - 1, high, high + 1, 2**64 - 1] * 5 + [low]
    (tmp_path / "words").write_bytes(struct.pack(f"<{len(words)}Q", *words))
    for threads in (), ("1",), ("2",), ("7",):
        command = [cache.limit, tmp_path / "words", str(low), str(high), *threads]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == f"{sum(low <= word < high for word in words)} of {len(words)} words\n"


def test_gdb_writes_the_core_where_the_kernel_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heaps, "kernel_writes_here", lambda: False)
    heap = heaps.Cache(tmp_path).get("mixed", BLOCKS)
    with heap.core.open("rb") as core:
        assert core.read(4) == b"\x7fELF"
    assert heap.truth["blocks"] == BLOCKS


def test_cache_drops_what_another_source_built(tmp_path: Path) -> None:
    superseded = tmp_path / "heaps-0123456789abcdef"
    superseded.mkdir()
    (superseded / "mixed-10000000.core").write_bytes(b"old")
    fresh = heaps.Cache(tmp_path)
    assert not superseded.exists()
    assert fresh.generator.exists()
    assert 2_400_000_000 <= fresh.missing_bytes([("mixed", 10_000_000)]) < 2_700_000_000


def test_a_full_disk_is_said_before_anything_is_written(cache: heaps.Cache) -> None:
    with pytest.raises(heaps.CannotBuild, match="make room"):
        cache.check_space([("mixed", 10**12)])


def test_confined_programs_cannot_use_more_memory() -> None:
    hungry = [sys.executable, "-c", "print(len(bytearray(b'x') * (300 << 20)))"]
    measure.run(hungry)
    with measure.confined(150 << 20) as confinement, pytest.raises(measure.Failed):
        measure.run([*confinement.prefix, *hungry])


def test_run_measures_the_child() -> None:
    sample = measure.run([sys.executable, "-c", "import time; time.sleep(0.3); b = bytearray(b'x') * (100 << 20)"])
    assert sample.wall >= 0.3
    assert sample.cpu > 0
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # counted in the child's, see run()
    assert 100 << 20 < sample.rss < max(200 << 20, own_peak + (1 << 20))


def test_python_keeps_what_it_compiles_in_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each run would compile all modules anew, and be slower than what a user sees."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert measure.Observed([sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)"]).end()[0] == 0


@pytest.mark.thorough("it times several commands")
def test_scripts_bench_runs(cache: heaps.Cache) -> None:
    command = [str(ROOT / "scripts" / "bench"), "--size", "100k", "--runs", "1", "--json", "--cache", str(cache.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    figures = json.loads(done.stdout)
    assert figures["failures"] == []
    assert [row["shape"] for row in figures["rows"]] == list(heaps.SHAPES)
    assert all(row["limit"] > 0 for row in figures["rows"])


def test_quick_is_for_ci() -> None:
    assert bench.parse(["--quick"]).sizes == [100_000, 1_000_000]
    assert bench.parse([]).sizes == [100_000, 1_000_000, 10_000_000]


def row(shape: str, size: int, **seconds: float) -> goals.Row:
    """Return a row in which every program took that long, CPU and wall, with 20.5 bytes a block above 64 MB."""
    heap = heaps.Heap(shape, size, Path("core"), {"blocks": size})
    resident = (64 << 20) + size * 41 // 2
    programs = {name.replace("threads", "threads="): taken for name, taken in seconds.items()}
    return goals.Row(heap, {name: measure.Sample(taken, taken, resident) for name, taken in programs.items()})


def test_full_cores_are_estimated_from_the_growth_between_two() -> None:
    few, many = (
        large.Measured("mixed", blocks, 0, measure.Sample(0.5 + blocks * 1e-7, 9.0, (30 << 20) + blocks * 14))
        for blocks in (1_000_000, 10_000_000)
    )
    full, fuller = large.estimate(few, many, 250.0)
    assert full == pytest.approx(
        {
            "shape": "mixed",
            "core, GB": 100,
            "blocks, million": 400.0,
            "memory, GB": (30 << 20) / 1e9 + 5.6,
            "B for one more block": 14.0,
            "CPU, s": 40.5,
        }
    )
    assert fuller["memory, GB"] == pytest.approx((30 << 20) / 1e9 + 56)


def test_goals_are_judged_on_the_largest_heap() -> None:
    rows = [
        row("mixed", 1_000_000, limit=0.05, findleaks=0.06, gdb=9.0, threads1=1.0, threads2=9.0),
        row("mixed", 10_000_000, limit=0.5, findleaks=1.0, gdb=1.2, threads1=1.0, threads2=0.6),
        row("singly", 10_000_000, limit=0.5, findleaks=1.0),
        row("doubly", 10_000_000, limit=0.5, findleaks=1.3),
        row("shuffled", 10_000_000, limit=0.5, findleaks=2.4, threads1=2.4, threads2=2.5),
    ]
    judged: list[tuple[Optional[str], Optional[bool], Optional[bool]]] = [
        (goal.measured, goal.reached, goal.floor_reached) for goal in goals.goals(rows)
    ]
    assert judged == [
        ("2.00x", False, True),
        ("2.00x", False, True),
        ("1.30x", False, None),
        ("240 ns", True, None),
        ("16.7x", False, None),
        ("20.5 bytes", False, None),
        ("0.20 s", True, None),
        ("1.04x", True, None),
        ("1.67x", False, None),
    ]


def test_goals_without_findleaks_are_not_measured() -> None:
    assert {goal.reached for goal in goals.goals([row("mixed", 1000, limit=0.1)])} == {None}


def test_goals_of_dumps() -> None:
    """A pause that even the program that only reads cannot keep says nothing about dmods."""
    seconds = ((0.14, 0.1), (0.2, 0.1), (0.2, 0.16))
    assert [dumps.Paused(10**9, *each).goal().reached for each in seconds] == [True, False, None]
    took = [dumps.Unpacked(1, *(measure.Sample(wall, wall, 1) for wall in (packed, 1, 1))) for packed in (2.3, 2.5)]
    assert [each.goal().reached for each in took] == [True, False]


@pytest.mark.thorough("it times several commands")
def test_dumps_are_measured(cache: heaps.Cache, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dmods"]
    found = dumps.paused(command, tmp_path, 50_000_000, 1)
    assert 50_000_000 <= found.size < 60_000_000
    assert min(found.seconds, found.limit) > 0
    _made, wrong = dumps.unpacked(command, cache.get("mixed", BLOCKS).core, tmp_path, 1)
    assert wrong == []


def test_start_judges_the_median_by_its_goal() -> None:
    runs, limit = [90.0, 300.0, 95.0], 50.0

    def reached(**goal: float) -> Optional[bool]:
        return start._figures(start.Command("a", (), (), **goal), runs, limit).reached

    assert reached() is None
    assert [reached(goal_ms=100), reached(goal_ms=94)] == [True, False]
    assert [reached(goal_times=1.9), reached(goal_times=1.89)] == [True, False]
    figures = start._figures(start.Command("a", (), ()), runs, limit)
    assert (figures.median, figures.least, figures.most, figures.times) == (95, 90, 300, 1.9)


def test_start_runs_every_command_and_its_limit(cache: heaps.Cache) -> None:
    commands = start.of_processes(cache.get("mixed", start.BLOCKS).core, cache.generator)
    found = start.measure(commands, 1)
    assert [one.name for one in found] == [one.name for one in commands]
    assert all(one.median > 0 and one.limit > 0 for one in found)


@pytest.mark.quick("c")
@pytest.mark.parametrize("name", debug.PROGRAMS)
def test_findleaks_finds_the_truth_with_and_without_debug_information(tmp_path: Path, name: str) -> None:
    core = debug.Cores(tmp_path).make(name, BLOCKS, tmp_path)
    assert core.truth["direct_count"] >= 1
    assert debug.wrong([sys.executable, "-m", "dmods"], core) == []


def test_debug_judges_the_worst_core() -> None:
    def row(name: str, command: str, plain: float, with_it: float, rss: int) -> debug.Measured:
        core = debug.Core(name, Path("core"), Path("stripped"), {"blocks": 1000})
        once, debugged = measure.Sample(plain, plain, 50_000), measure.Sample(with_it, with_it, rss)
        both = measure.Sample(1.0, 1.0, 50_000), measure.Sample(1.2, 1.2, 60_000)
        return debug.Measured(core, command, once, debugged, *both)

    rows = [
        row("c", "findleaks", 1.0, 1.2, 60_000),
        row("rust", "findleaks", 1.0, 1.6, 50_000),
        row("c", "types", 2.0, 3.0, 70_000),
        row("c++", "types", 2.0, 3.7, 80_000),
    ]
    judged = [(goal.name, goal.measured, goal.reached, goal.detail) for goal in debug.goals(rows)]
    assert judged == [
        ("findleaks, CPU", "1.60x", False, "rust"),
        ("findleaks, wall", "1.60x", False, "rust"),
        ("types", "3.08x", False, "c++"),
        ("memory", "30 B", False, "c++: types"),
    ]
    assert [goal.reached for goal in debug.goals(rows[:1])] == [True, True, True]


@pytest.mark.thorough("it compiles a large unit, and runs six commands")
def test_the_bench_of_much_debug_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1 when the leaks are not those of the program. Each unit has types of its own."""
    monkeypatch.setitem(dwarf.SIZES, "10M", 2 * dwarf._PER_UNIT)
    assert dwarf.main(["--size", "10M", "--cache", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    size = int(said.split(" MB")[0])
    assert 2 <= size < 8
    assert [line for line in said.splitlines() if line.startswith("findleaks, second")]
    assert list(tmp_path.iterdir()) == []
