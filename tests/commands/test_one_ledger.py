"""All commands have the same totals for the same words, whichever allocator it is and in whatever order one asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers, cores, jemallocs, mimallocs, musls, pythons, tcmallocs
from fixtures.cores import CoreSet
from tests.quick import only

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("triage",),
    ("triage", "--checks", "death"),
    ("suspects",),
    ("owners",),
    ("malloc_stats",),
    ("maps",),
)


def opened(made: CoreSet) -> CoreFile:
    return CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None)


WAYS: dict[str, Callable[[], CoreFile]] = {
    "glibc": lambda: opened(cores.take("graph")),
    "arenas": lambda: opened(cores.take("arenas")),
    "gcore": lambda: opened(cores.take("graph", "gcore")),
    "jemalloc": lambda: opened(jemallocs.take("graph")),
    "tcmalloc": lambda: opened(tcmallocs.take("graph")),
    "mimalloc 2": lambda: opened(mimallocs.take("graph", "2.0.9")),
    "mimalloc 3": lambda: opened(mimallocs.take("graph", "3.6")),
    "musl": lambda: opened(musls.take("graph")),
    "python": lambda: pythons.core("host", "objects").target(),
    "go": lambda: opened(cores.take("gopher")),
    "damaged": lambda: opened(cores.take("corrupt")),
}


def memory(target: CoreFile, *words: str) -> dict[str, Any]:
    found = answers.answer(target, *words)["totals"]["memory"]
    assert isinstance(found, dict)
    return found


# Both tests ask each allocator for the totals of several commands: the quick run has two in each.
@pytest.mark.parametrize("way", only(["glibc", "jemalloc"], WAYS))
def test_the_same_words_have_the_same_totals(way: str) -> None:
    first = memory(WAYS[way](), "malloc_stats")
    assert first["in_use_bytes"] > 0
    # Each on a target of its own, and then one after the other, backwards.
    assert [memory(WAYS[way](), *words) for words in COMMANDS] == [first] * len(COMMANDS)
    target = WAYS[way]()
    assert [memory(target, *words) for words in reversed(COMMANDS)] == [first] * len(COMMANDS)


@pytest.mark.parametrize("way", only(["tcmalloc", "musl"], WAYS))
def test_what_commands_print_sums_to_these_totals(way: str) -> None:
    target = WAYS[way]()
    totals = memory(target, "malloc_stats")
    heap = sum(totals[f"{use}_bytes"] or 0 for use in ("in_use", "leaked", "free", "own"))
    assert heap == totals["heap_bytes"]
    kinds = {row["kind"]: row["bytes"] for row in answers.by_name(answers.answer(target, "maps"))["kinds"]}
    assert kinds.get("heap", 0) + kinds.get("arena", 0) == heap
    owners = answers.answer(target, "owners", "--top", str(1 << 20))
    lines = answers.by_name(owners)["owners"]
    assert sum(row["bytes"] for row in lines) == heap == owners["totals"]["heap_bytes"]
    free = sum(owners["totals"][f"{part}_bytes"] for part in ("free", "top", "never"))
    assert free == totals["free_bytes"]
    if totals["leaked_bytes"] is not None:
        leaks = answers.answer(target, "findleaks")["totals"]
        assert leaks["leaked_bytes"] == totals["leaked_bytes"] == owners["totals"]["leaked_bytes"]
    triage = answers.answer(target, "triage")
    parts = answers.by_name(triage)["memory"]
    assert sum(part["bytes"] for part in parts) == triage["totals"]["memory_bytes"] == totals["touched_bytes"]


def test_growth_has_them_of_both_cores() -> None:
    old, new = opened(cores.take("graph")), opened(cores.take("graph", "gcore"))
    grown = answers.answer(new, "growth", old.path or "")["totals"]
    assert grown["old_memory"] == memory(old, "maps")
    assert grown["memory"] == memory(new, "maps")
    assert grown["old_memory"] != grown["memory"]
