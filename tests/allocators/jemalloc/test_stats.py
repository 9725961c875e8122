"""malloc_stats and heapsizes under jemalloc, compared to the byte with jemalloc's own figures."""

from __future__ import annotations

from typing import Any

import pytest

from dmods.allocators.jemalloc import stats
from dmods.allocators.jemalloc.stats import Usage
from dmods.corefile.target import CoreFile
from dmods.heap.heap import find_heap
from fixtures import answers, jemallocs
from fixtures.cores import CoreSet
from fixtures.heaps import jemalloc_heaps
from fixtures.jemallocs import Crate
from tests.allocators.jemalloc.test_both import NEW

PAGE = 4096
CASES = [("host", ""), ("bullseye", ""), ("trixie", ""), ("sid", "")]
#: Memory that extents are cut from, or kept for, is not in use. It is not free as other memory is.
CASES += [("host", "hpa:true"), ("host", "san_guard_small:1,san_guard_large:1")]
#: Its thread must purge nothing between the figures and the core.
CASES += [("host", "background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1")]


@pytest.fixture(scope="module", params=[*CASES, NEW], ids=lambda case: "-".join(case) if case in CASES else str(case))
def made(request: pytest.FixtureRequest) -> CoreSet:
    if isinstance(request.param, Crate):
        return jemallocs.both(request.param)
    return jemallocs.take("jestats", userland=request.param[0], conf=request.param[1])


def figures(made: CoreSet) -> list[Usage]:
    heap = find_heap(CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None))
    (found,) = jemalloc_heaps(heap)
    one, caches = found.one, found.caches
    return stats.usages(heap.words, one, caches)


@pytest.mark.quick("host-", "host-hpa:true")
def test_every_arena_and_bin_is_what_mallctl_said(made: CoreSet) -> None:
    facts, found = made.truth.facts, figures(made)
    assert found
    said = {name.split(".")[2] for name in facts if name.startswith("stats.arenas.")}
    assert {str(usage.arena) for usage in found} == said
    for usage in found:
        prefix = f"stats.arenas.{usage.arena}."
        assert usage.small == facts[prefix + "small.allocated"]
        assert usage.large == facts[prefix + "large.allocated"]
        assert usage.active == PAGE * facts[prefix + "pactive"]
        assert usage.dirty == PAGE * facts[prefix + "pdirty"]
        assert usage.muzzy == PAGE * facts[prefix + "pmuzzy"]
        assert usage.retained == facts[prefix + "retained"]
    assert sum(usage.allocated for usage in found) == facts["stats.allocated"]
    assert sum(usage.active for usage in found) == facts["stats.active"]


@pytest.mark.quick("host-", "host-hpa:true")
def test_every_size_class_is_what_mallctl_said(made: CoreSet) -> None:
    heap = find_heap(CoreFile(str(made.core), sysroot=str(made.sysroot) if made.sysroot else None))
    sizes, bins = jemalloc_heaps(heap)[0].one.layout.sizes, jemalloc_heaps(heap)[0].one.layout.bins
    found = {(usage.arena, each.size): each for usage in figures(made) for each in usage.classes}
    looked_at = 0
    for name, value in made.truth.facts.items():
        parts = name.split(".")
        if parts[3:4] == ["bins"]:
            each = found.get((int(parts[2]), sizes[int(parts[4])]))
            mine = 0 if each is None else each.allocated if parts[5] == "curregs" else each.slabs
        elif parts[3:4] == ["lextents"]:
            each = found.get((int(parts[2]), sizes[bins + int(parts[4])]))
            mine = each.allocated if each is not None else 0
        else:
            continue
        looked_at += 1
        assert mine == value, name
    assert looked_at > 400


def report(command: str, made: CoreSet, *args: str) -> Any:
    return answers.typed(command, made.core, *args, *(["--sysroot", made.sysroot] if made.sysroot else []))


def test_the_commands_add_up() -> None:
    made = jemallocs.take("jestats")
    said = report("malloc_stats", made, "--bins")
    tables = {table["name"]: table["rows"] for table in said["tables"]}
    facts = made.truth.facts
    assert said["totals"]["jemalloc_allocated_bytes"] == facts["stats.allocated"]
    assert sum(row["bytes"] for row in tables["jemalloc_classes"]) == facts["stats.allocated"]
    assert sum(row["allocated_bytes"] for row in tables["jemalloc_arenas"]) == facts["stats.allocated"]
    assert sum(row["tcaches"] for row in tables["jemalloc_arenas"]) == 4
    assert all(row["address"] for row in tables["jemalloc_arenas"] if row["tcaches"])
    together = {table["name"]: table["rows"] for table in report("malloc_stats", made)["tables"]}
    assert sum(row["bytes"] for row in together["jemalloc_classes"]) == facts["stats.allocated"]
    sizes = report("heapsizes", made)["totals"]
    # Blocks in tcaches are free. jemalloc's own memory belongs to nobody.
    cached = said["totals"]["jemalloc_cached_bytes"]
    own = facts["stats.allocated"] - cached - sizes["live_bytes"]
    assert 0 < own < 256 << 10
    arenas = [row["arena"] for row in tables["jemalloc_arenas"]]
    target = CoreFile(str(made.core))
    parts = [answers.answer(target, "heapsizes", "--arena", name)["totals"]["live_bytes"] for name in arenas]
    assert sum(parts) == sizes["live_bytes"]
