"""A bounded part of ``scripts/fuzz``, with seeds that stay: no damage ends otherwise than with an answer or a
UserError."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.fuzz.driver import DUMPS, REGRESSIONS, Finding, Victim, Worker, replay
from tests.fuzz.recipes import Recipe, invent

SECONDS = float(os.environ.get("DMODS_FUZZ_SECONDS", "100"))
LEAST = 20  # damaged cores, however slow the machine is


def told(findings: list[Finding]) -> str:
    return "\n".join(f"{one.recipe.text()}{one.command}: {one.trace}" for one in findings)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def test_the_undamaged_cores(work: Path) -> None:
    for _recipe, found in replay([Recipe(dump) for dump in DUMPS], work):
        assert not found, told(found)


def test_what_once_broke_stays_mended(work: Path) -> None:
    recipes = [Recipe.read(path) for path in sorted(REGRESSIONS.glob("*.json"))]
    assert recipes
    for _recipe, found in replay(recipes, work):
        assert not found, told(found)


def test_random_damage_to_every_structure(work: Path) -> None:
    deadline = time.monotonic() + SECONDS
    count = 0
    with Worker() as worker:
        victims = [Victim(dump, work) for dump in DUMPS]
        while count < LEAST or time.monotonic() < deadline:
            victim = victims[count % len(victims)]
            recipe = invent(victim.fields, victim.dump, f"fixed-{count}")
            found = worker.judge(recipe, victim.core, victim.damage(recipe)).findings
            assert not found, told(found)
            victim.mend(recipe)
            count += 1


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
