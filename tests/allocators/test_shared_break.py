"""Two allocators that take memory from sbrk in turns: both heaps are whole, and no memory counts twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dmods.allocators.numbers import NO_ARENA
from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT, INDIRECT, LIVE
from dmods.heap.heap import find_heap
from fixtures import answers, jemallocs, tcmallocs
from fixtures.heaps import glibc
from tests.allocators.mimalloc.test_damage import offset, place, write
from tests.corekit import compile_c, kernel_core
from tests.quick import only

HERE = Path(__file__).parent
HIDDEN = 0x5A5A5A5A5A5A5A5A
#: Debian's jemalloc needs more static TLS than glibc keeps for libraries that are loaded late.
ROOM = "glibc.rtld.optional_static_tls=16384"


class Other(NamedTuple):
    """An allocator beside glibc's: its library, its functions, its name among the blocks, and what it needs."""

    library: str
    functions: tuple[str, str]
    name: str
    env: dict[str, str]


@cache
def other(allocator: str) -> Other:
    if allocator == "jemalloc":
        settings = {"MALLOC_CONF": "dss:primary", "GLIBC_TUNABLES": ROOM}
        return Other(jemallocs.library(), ("malloc", "free"), "jemalloc", settings)
    library = tcmallocs.library()
    preloaded = {"LD_PRELOAD": library} if allocator == "tcmalloc, preloaded" else {}
    return Other(library, ("tc_malloc", "tc_free"), "tcmalloc", preloaded)


class Shared(NamedTuple):
    """A core, the blocks that the program told (address to allocator, "live" or "lost", bytes), and malloc_stats(3)."""

    core: Path
    blocks: dict[int, tuple[str, str, int]]
    stats: list[str]


def told(lines: list[str], name: str) -> Iterator[tuple[int, tuple[str, str, int]]]:
    for who, state, hidden, size in (line.split() for line in lines):
        yield int(hidden) ^ HIDDEN, ("glibc malloc" if who == "glibc" else name, state, int(size))


#: Allocator, seed, the most bytes of a block.
CASES = {
    f"{allocator} {seed} {most}": (allocator, seed, most)
    for allocator in ("tcmalloc", "jemalloc", "tcmalloc, preloaded")
    for seed, most in ((1, 30_000), (2, 60_000), (3, 400_000))
}
QUICK = ("tcmalloc 1 30000", "jemalloc 2 60000")


@pytest.fixture(scope="module", params=only(QUICK, CASES))
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    allocator, seed, most = CASES[request.param]
    where, library = tmp_path_factory.mktemp("shared"), other(allocator)
    program = compile_c(HERE / "shared_break.c", where / "shared_break", "-ldl")
    work = where / "work"
    work.mkdir()
    words = (library.library, *library.functions, str(seed), str(most))
    core = kernel_core(program, work, *words, env=library.env, output=where / "told")
    lines = (where / "told").read_text().splitlines()
    first = lines.index("Arena 0:")
    return Shared(core, dict(told(lines[:first], library.name)), lines[first:])


def test_both_heaps_are_whole(shared: Shared) -> None:
    heap = find_heap(CoreFile(str(shared.core)))
    states = {LIVE: "live", DIRECT: "lost", INDIRECT: "lost"}
    found = {block.address: block for block in heap.blocks(LIVE, DIRECT, INDIRECT)}
    assert {who for who, *_ in shared.blocks.values()} == {one.allocator for one in heap.heaps}
    seen = {at: (found[at].allocator, states[found[at].state]) for at in shared.blocks if at in found}
    assert seen == {at: (who, state) for at, (who, state, _size) in shared.blocks.items()}
    assert all(found[at].size >= size for at, (*_, size) in shared.blocks.items())
    lost = {at for at, (_who, state, _size) in shared.blocks.items() if state == "lost"}
    assert {block.address for block in heap.blocks(DIRECT, INDIRECT)} == lost
    assert heap.notes == []


def test_no_memory_counts_twice(shared: Shared) -> None:
    target = CoreFile(str(shared.core))
    heap = find_heap(target)
    parts = sorted(part for one in heap.heaps for part in one.owned)
    assert len(parts) > 2
    assert [this for this, after in zip(parts, parts[1:]) if after[0] < this[1]] == []
    stretches = [run[:2] for run in glibc(heap).layout.runs if run[3] != NO_ARENA]
    assert len(stretches) > 1  # the program and the library did take turns
    owners = answers.answer(target, "owners", "--top", str(1 << 20))
    lines = answers.by_name(owners)["owners"]
    kinds = {row["kind"]: row["bytes"] for row in answers.by_name(answers.answer(target, "maps"))["kinds"]}
    assert sum(row["bytes"] for row in lines) == owners["totals"]["heap_bytes"] == kinds["heap"]


def test_the_heaps_are_clean(shared: Shared) -> None:
    answer = answers.answer(CoreFile(str(shared.core)), "heapcheck", "--fail-on-damage")
    assert {row["verdict"] for row in answers.by_name(answer)["arenas"]} == {"clean"}
    assert answer["status"] == 0


def test_malloc_stats_counts_the_chunks_alone(shared: Shared) -> None:
    target = CoreFile(str(shared.core))
    assert [row[0] for row in answers.report(target, "malloc_stats", "--glibc").tables[0].rows] == shared.stats
    rows = answers.by_name(answers.answer(target, "malloc_stats"))["arenas"]
    main = next(row for row in rows if row["arena"] == "main")
    layout = glibc(find_heap(target)).layout
    chunks = sum(end - start for start, end, _kind, arena, _usable in layout.runs if arena == 0)
    assert 0 <= main["system_bytes"] - chunks - main["top_bytes"] < 4096
    counted = next(int(line.split("=")[1]) for line in shared.stats if line.startswith("system bytes"))
    assert counted > main["system_bytes"]


def test_a_damaged_chunk_is_found_and_costs_no_block_of_the_other(shared: Shared, tmp_path: Path) -> None:
    core = Path(shutil.copy(shared.core, tmp_path / "core"))
    layout = glibc(find_heap(CoreFile(str(core)))).layout
    start, end = sorted(run[:2] for run in layout.runs if run[3] == 0)[1]
    inside = [at for at, (who, *_) in shared.blocks.items() if who == "glibc malloc" and start + 4096 < at < end]
    chunk = min(inside) - 16
    with open(core, "r+b") as stream:
        write(stream, offset(place(core), chunk + 8), 0x4141414141414141)
    target = CoreFile(str(core))
    assert answers.answer(target, "heapcheck", "--fail-on-damage")["status"] == 3
    heap = find_heap(target)
    others = {at for at, (who, *_) in shared.blocks.items() if who != "glibc malloc"}
    assert others <= {block.address for block in heap.blocks(LIVE, DIRECT, INDIRECT)}
    assert len(others) > 100
