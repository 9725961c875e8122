"""The fixtures themselves: programs whose own account is true, and independent witnesses who agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fixtures import cores, reach, software
from fixtures.mallocinfo import MallocInfo
from fixtures.programs import PROGRAMS
from tests import quick
from tools import oracles

OTHERS = ("bullseye", "trixie", "sid")

ALL = [(program.name, mode) for program in PROGRAMS.values() for mode in program.modes]
CHECKED = [(program.name, mode) for program in PROGRAMS.values() if program.oracles for mode in program.modes]
#: The programs that LeakSanitizer and memcheck judge in the quick tests.
QUICKLY_JUDGED = (("sizes", ""), ("graph", "exact"), ("anchors", ""))
#: The programs that leave their heap whole and ask the allocator at the very end.
WHOLE = CHECKED + [(name, "") for name in ("registers", "huge", "forked")]


@pytest.mark.parametrize(
    ("name", "mode"),
    quick.only([case for case in ALL if case[0] not in ("gopher", "millions")], ALL, "no quick test needs it"),
)
def test_a_program_tells_and_dies(name: str, mode: str) -> None:
    variant = "static" if name == "freestanding" else "dynamic"
    made = cores.take(name, variant=variant, mode=mode)
    assert made.truth.told
    with open(made.core, "rb") as core:
        assert core.read(4) == b"\x7fELF"
    for block in made.truth.blocks.values():
        assert block.state in ("live", "direct", "indirect", "cycle", "freed")
        assert block.usable >= block.size


@pytest.mark.parametrize(("name", "mode"), WHOLE)
def test_truth_is_consistent(name: str, mode: str) -> None:
    """No two blocks in use share a byte. Together they have at most the bytes that the allocator says are in use."""
    truth = cores.take(name, mode=mode).truth
    used = sorted((b.address, b.address + b.usable) for b in truth.blocks.values() if b.state != "freed")
    assert all(end <= start for (_, end), (start, _) in zip(used, used[1:]))
    assert sum(end - start for start, end in used) <= truth.mallinfo["uordblks"] + truth.mallinfo["hblkhd"]


@pytest.mark.parametrize(
    ("name", "mode", "userland"),
    [(*case, "host") for case in WHOLE]
    + [(name, "", land) for land in OTHERS for name in ("sizes", "graph", "freed", "arenas", "mainarena")],
)
def test_mallinfo_and_malloc_info_agree(name: str, mode: str, userland: str) -> None:
    truth = cores.take(name, userland=userland, mode=mode).truth
    account = MallocInfo.parse(truth.malloc_info)
    assert account.system == truth.mallinfo["arena"]
    assert account.free == truth.mallinfo["fordblks"]
    assert account.system - account.free == truth.mallinfo["uordblks"]
    assert (account.mmap_count, account.mmap_bytes) == (truth.mallinfo["hblks"], truth.mallinfo["hblkhd"])
    assert f"in use bytes     = {account.arenas[0].in_use:>10}" in truth.malloc_stats


def judged(cases: Sequence[tuple[str, str]]) -> Iterator[object]:
    """Yield parameters for tests that run a program under another tool. Few of them are quick."""
    for case in cases:
        marks = [] if case in QUICKLY_JUDGED else [pytest.mark.thorough("another program is judged")]
        yield pytest.param(*case, marks=marks)


#: In LeakSanitizer's own allocator, which the program then has, a block may begin where a vector ends.
NOT_FOR_LSAN = [("ends", "")]


@pytest.mark.parametrize(("name", "mode"), list(judged([case for case in CHECKED if case not in NOT_FOR_LSAN])))
def test_leak_sanitizer_agrees(name: str, mode: str) -> None:
    leaks = oracles.leak_sanitizer(name, mode)
    assert oracles.lsan_differences(name, leaks) == []


@pytest.mark.parametrize(("name", "mode"), list(judged([case for case in CHECKED if case != ("graph", "")])))
def test_memcheck_agrees(name: str, mode: str) -> None:
    losses = oracles.memcheck(name, mode)
    assert oracles.memcheck_differences(name, mode, losses) == []


@pytest.mark.parametrize("userland", ["host", *OTHERS])
def test_a_thread_leaves_the_main_arena_in_every_glibc(userland: str) -> None:
    assert cores.take("arenas", userland=userland).truth.facts["left-main-arena"] == 1


def test_sources_of_a_graph() -> None:
    edges = {1: [2], 2: [3], 3: [2], 4: [5], 5: [4, 6], 6: [6], 7: [7]}
    assert sorted(map(sorted, reach.sources({1, 2, 3, 4, 5, 6, 7}, edges))) == [[1], [4, 5], [7]]


@pytest.fixture(params=["redis", "python", "python-malloc", "gdb"])
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[software.Snapshot]:
    with software.start(request.param, tmp_path) as process:
        yield software.snapshot(process, tmp_path)


def test_real_software_has_a_heap_to_speak_of(snapshot: software.Snapshot) -> None:
    account = snapshot.account
    assert account.system + account.mmap_bytes > 1 << 20
    assert 0 < account.free < account.system
    assert snapshot.core.stat().st_size > account.system
