"""A bounded part of ``scripts/fuzz`` with fixed seeds. Every damaged core ends with an answer or a UserError."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures._cache import ROOT
from tests import quick
from tests.fuzz.driver import DUMPS, REGRESSIONS, Finding, Victim, Worker, replay
from tests.fuzz.engine import TARGETS
from tests.fuzz.recipes import Recipe, invent

CORES = int(os.environ.get("DMODS_FUZZ_CORES", "3"))  # damaged cores of each dump
#: Regressions that damage different structures: an arena, a chunk, a mapping, a vtable.
QUICKLY = ("main-arena-leads-into-itself", "heap-of-1-TiB", "mappings-of-4-EiB", "vtable-at-zero")


def told(findings: list[Finding]) -> str:
    return "\n".join(f"{one.recipe.text()}{one.command}: {one.trace}" for one in findings)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.thorough("other tests take whole cores")
def test_the_undamaged_cores(work: Path) -> None:
    judged = [found for _recipe, found in replay([Recipe(dump) for dump in DUMPS], work)]
    assert len(judged) == len(DUMPS)
    for found in judged:
        assert not found, told(found)


@pytest.mark.parametrize("name", quick.only(QUICKLY, sorted(path.stem for path in REGRESSIONS.glob("*.json"))))
def test_what_once_broke_stays_mended(work: Path, name: str) -> None:
    ((_recipe, found),) = replay([Recipe.read(REGRESSIONS / f"{name}.json")], work)
    assert not found, told(found)


@pytest.mark.parametrize("dump", quick.only(("small",), DUMPS))
def test_random_damage_to_every_structure(work: Path, dump: str) -> None:
    assert CORES > 0
    with Worker() as worker:
        victim = Victim(dump, work)
        for number in range(CORES):
            recipe = invent(victim.fields, victim.dump, f"fixed-{number}")
            found = worker.judge(recipe, victim.core, victim.damage(recipe)).findings
            assert not found, told(found)
            victim.mend(recipe)


def test_a_recipe_is_the_same_when_read_again_and_leaves_no_trace(work: Path, tmp_path: Path) -> None:
    victim = Victim("kernel", work)
    whole = victim.core.read_bytes()
    for number in range(50):
        recipe = invent(victim.fields, "kernel", f"again-{number}")
        (tmp_path / "recipe").write_text(recipe.text())
        assert Recipe.read(tmp_path / "recipe") == recipe
        victim.damage(recipe)
        victim.mend(recipe)
        assert victim.core.read_bytes() == whole


def test_every_target_of_the_engine_is_in_the_page() -> None:
    """The page describes it. The table has its counts, or a line says that it has none."""
    page = (ROOT / "docs" / "FUZZING.md").read_text()
    names = {path.stem for path in (ROOT / "engine" / "fuzz" / "fuzz_targets").glob("*.rs")}
    assert names == set(TARGETS)
    counts = page.partition("## Counts")[2]
    for name in names:
        assert f"(`{name}`)" in page
        assert f"\n| {name} |" in counts or f"`{name}`" in counts.partition("<!--")[0]
