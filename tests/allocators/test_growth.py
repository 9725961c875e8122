"""growth and the other commands under each allocator, compared with the ledger of a program that follows a script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, growths, pythons
from fixtures.growths import Run
from tests.commands.test_growth import KEYS, OWNERS, check_sums, findings, grown, row_of, rows_of

pytestmark = pytest.mark.thorough("three cores under each allocator")

#: What a block of each kind begins with, as the sources have it.
SHAPES = {"held": "'session-", "cache": "'cached-p", "filling": "'filling-", "request": "'GET /pag"}
#: How each allocator gives memory back, in its own words.
ADVICE = {
    "jemalloc": "dirty_decay_ms",
    "tcmalloc": "ReleaseFreeMemory",
    "mimalloc": "mi_collect",
    "musl": "all of them",
}
ARENAS = {"jemalloc": r"je\d+", "tcmalloc": "tcmalloc", "mimalloc": "mimalloc", "musl": "musl's malloc"}


_SELDOM = pytest.mark.seldom("other releases of the allocator grow alike")


def _newest() -> list[object]:
    """Return the allocators; all but the last of each family are tried seldom."""
    last = {family(name): name for name in growths.ALLOCATORS}
    return [name if name in last.values() else pytest.param(name, marks=_SELDOM) for name in growths.ALLOCATORS]


def family(allocator: str) -> str:
    return allocator.partition(" ")[0]


@pytest.fixture(scope="module", params=_newest())
def allocator(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(allocator: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return growths.under(allocator, tmp_path_factory.mktemp("grows"), "with fragments")


@pytest.fixture(
    scope="module", params=["host", *(pytest.param(each, marks=_SELDOM) for each in pythons.VERSIONS)], ids=str
)
def python(request: pytest.FixtureRequest) -> Run:
    return growths.in_python(request.param)


def typed(run: Run, by: str) -> dict[str, Any]:
    """Return what growth prints in the shell, with the folder that has the files of another userland."""
    under = ("--sysroot", run.sysroot) if run.sysroot is not None else ()
    return answers.typed("growth", *run.cores, "--by", by, "--top", "1000000", *under)


def last(run: Run) -> CoreFile:
    return CoreFile(str(run.cores[2]))


def asked(run: Run, command: str, *words: str) -> dict[str, Any]:
    return answers.answer(last(run), command, *words)


def rows(run: Run, command: str, *words: str) -> list[dict[str, Any]]:
    (table, *_) = asked(run, command, *words)["tables"]
    found: list[dict[str, Any]] = table["rows"]
    return found


@pytest.mark.parametrize("by", KEYS)
def test_the_sums_are_exact_under_every_key(run: Run, by: str) -> None:
    answer = grown(run.cores, "--by", by)
    check_sums(answer, run.cores)
    assert all(note.startswith("noise: ") or "probably the same" in note for note in answer["notes"])


def test_owners_types_and_sizes_are_those_of_the_ledger(run: Run) -> None:
    owners, types = grown(run.cores, "--by", "owner"), grown(run.cores, "--by", "type")
    sizes = {row["key"]: row["each_bytes"] for row in rows_of(grown(run.cores, "--by", "size"))}
    for kind in run.kinds:
        (row,) = [row for row in rows_of(owners) if row["key"] == OWNERS[kind]]
        assert row["each_bytes"] == run.each(kind)
        assert row["each_count"] == [run.ledger[turn, kind][0] for turn in range(3)]
        blocks, size = run.ledger[2, kind]
        found = sizes[str(size // blocks)]
        # A class of sizes may hold a few blocks of the process beside those of the program, the same in all cores.
        assert [now - found[0] for now in found] == [now - run.bytes(0, kind) for now in run.each(kind)]
    for kind, shape in SHAPES.items():
        assert row_of(types, shape)["each_bytes"] == run.each(kind)


def test_the_leaks_come_first_and_caches_are_not_named(run: Run, allocator: str) -> None:
    answer = grown(run.cores)
    first, second = rows_of(answer)[:2]
    assert first["growth_bytes"] == run.growth("lost")
    assert second["growth_bytes"] == run.growth("held")
    assert (second["gone_count"], second["new_count"], second["kept_count"], second["survived_count"]) == (
        0,
        120,
        60,
        60,
    )
    assert (first["gone_count"], first["new_count"], first["kept_count"], first["survived_count"]) == (0, 80, 40, 40)
    said = findings(answer)
    assert len(said) == 3
    assert all(text.startswith("Blocks of shape ") for text in said[:2])
    assert "fragmentation" in said[2]
    assert ADVICE[family(allocator)] in said[2]


def test_states_and_arenas_have_names(run: Run, allocator: str) -> None:
    assert row_of(grown(run.cores, "--by", "state"), "leaked")["each_bytes"] == run.each("lost")
    arenas = rows_of(grown(run.cores, "--by", "arena"))
    assert all(re.fullmatch(ARENAS[family(allocator)], row["key"]) for row in arenas)


def test_commands_agree_with_the_ledger(run: Run, allocator: str) -> None:
    states = {row["key"]: row["now_bytes"] for row in rows_of(grown(run.cores, "--by", "state"))}
    in_use, own = sum(states.values()), states.get("the allocator's own", 0)
    leaked = run.ledger[2, "lost"]
    totals = asked(run, "findleaks")["totals"]
    assert (totals["direct_count"], totals["direct_bytes"]) == leaked
    sizes = {row["least"]: row for row in rows(run, "heapsizes")}
    for kind in run.kinds:
        blocks, size = run.ledger[2, kind]
        assert sizes[size // blocks]["live_count"] >= blocks
    assert asked(run, "heapcheck", "--fail-on-damage")["status"] == 0
    owners = asked(run, "owners", "--top", "100")
    lines = {row["owner"]: row for row in owners["tables"][0]["rows"]}
    for kind in run.kinds:
        if kind != "lost":
            assert lines[OWNERS[kind]]["bytes"] == run.bytes(2, kind)
    assert sum(row["bytes"] for row in lines.values()) == owners["totals"]["heap_bytes"]
    types = rows(run, "types", "--top", "1000")
    assert sum(row["bytes"] for row in types) == in_use - own
    stats = asked(run, "malloc_stats")
    if allocator == "jemalloc":
        assert stats["totals"]["jemalloc_allocated_bytes"] - stats["totals"]["jemalloc_cached_bytes"] == in_use
    else:
        assert {row["what"]: row["value"] for row in stats["tables"][0]["rows"]}["bytes in use"] == in_use


def test_walks_are_those_of_the_ledger(run: Run) -> None:
    buffers = rows(run, "walk", "buf")
    of_size: dict[int, int] = {}
    for row in buffers:
        of_size[row["size"]] = of_size.get(row["size"], 0) + 1
    for kind in run.kinds:
        blocks, size = run.ledger[2, kind]
        assert blocks <= of_size[size // blocks] <= blocks + 16
    leaked = rows(run, "walk", "leakbuf")
    assert (len(leaked), sum(row["size"] for row in leaked)) == run.ledger[2, "lost"]
    free = {row["address"] for row in rows(run, "walk", "freebuf")}
    assert free
    assert not free & {row["address"] for row in buffers}
    # The arena of a block has the blocks of that arena.
    one = leaked[0]
    same = rows(run, "walk", "buf", one["address"])
    assert {row["address"] for row in same} == {row["address"] for row in buffers if row["arena"] == one["arena"]}
    arenas = asked(run, "walk", "arena")
    assert arenas["tables"][0]["rows"] or any("has no arenas" in note for note in arenas["notes"])


def test_suspects_names_what_holds_most(allocator: str, tmp_path: Path) -> None:
    run = growths.under(allocator, tmp_path, "4")  # one in four of the fragments stays: 10 MB
    (table, *_) = asked(run, "suspects", "--least", "1M")["tables"]
    # Three of four fragments are free again.
    assert "fragments" in next(row["sentence"] for row in table["rows"] if row["kind"] == "held")
    assert any(row["kind"] == "free" for row in table["rows"])
    grew = grown(run.cores[:2], "--by", "owner")
    assert findings(grew)[0].startswith("What grows`fragments holds grew by ")


@pytest.mark.parametrize("by", KEYS)
def test_sums_are_exact_in_cpython(python: Run, by: str) -> None:
    check_sums(typed(python, by), python.cores, python.sysroot)


def test_growth_in_cpython_is_that_of_the_ledger(python: Run) -> None:
    """All of its objects are bytes. The interpreter has others, and as many in each round."""
    answer = typed(python, "type")
    first = rows_of(answer)[0]
    kinds = sorted({kind for _turn, kind in python.ledger})
    others = {size - sum(python.bytes(turn, kind) for kind in kinds) for turn, size in enumerate(first["each_bytes"])}
    assert (first["key"], len(others)) == ("bytes", 1)
    grown_by = sum(python.growth(kind) for kind in kinds)
    assert first["growth_bytes"] == grown_by
    assert findings(answer)[0].startswith(f"Blocks of type bytes grew by {grown_by} bytes")
    leaked = row_of(typed(python, "state"), "leaked")
    assert leaked["growth_bytes"] == python.growth("lost")
    arenas = {row["key"] for row in rows_of(typed(python, "arena"))}
    assert "pymalloc" in arenas
    assert not any(key.isdigit() for key in arenas)
