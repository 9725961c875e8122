"""malloc finds its heap damaged: triage and heapcheck name the culprit, and not what malloc itself had begun."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import Finding
from dmods.triage.checks import death
from dmods.triage.facts import ProcessFacts
from fixtures import answers
from tests.corekit import dumped_in, kernel_core

SOURCE = Path(__file__).parent / "complaints.c"
STALE = (
    "unsorted",
    "unsorted-behind",
    "unsorted-before",
    "unsorted-footer",
    "unsorted-fd",
    "unsorted-wild",
    "double-linked",
    "double-linked-before",
    "large-bin",
    "small-bin",
    "small-bin-take",
)
GONE = ("tcache", "fast-bin")
BOUNDS = (
    "over-unsorted",
    "over-next",
    "over-realloc",
    "over-size",
    "over-fast",
    "first",
    "first-small",
    "first-text",
    "first-zero",
    "first-larger",
    "first-smaller",
)
RELEASES = ("bullseye", "trixie", "sid")
OLD = (*STALE, "tcache", *BOUNDS[:4], "first", "first-text", "first-smaller")  # what all releases complain of


class Died(NamedTuple):
    """A program that died: its own words about the culprit, and the answers of dmods."""

    how: str
    culprit: int
    found: Finding
    heapcheck: dict[str, Any]


def _judged(core: Path, said: str, sysroot: str | None = None) -> Died:
    how, pointer = said.split()[:2]
    target = CoreFile(str(core), sysroot=sysroot)
    (found,) = [each for each in death.run(ProcessFacts(target)) if isinstance(each, Finding)]
    return Died(how, int(pointer, 16), found, answers.answer(target, "heapcheck"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("complaints") / "complaints"
    subprocess.run(["gcc", "-O0", "-g", "-w", str(SOURCE), "-o", str(made)], check=True)
    return made


@pytest.mark.quick("unsorted", "unsorted-footer", "large-bin")
@pytest.mark.parametrize("way", STALE)
def test_a_free_block_that_was_written(way: str, program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, way)
    died = _judged(core, (tmp_path / "said").read_text())
    assert died.how == "stale"
    assert died.found.kind == "write-after-free", died.found.what
    assert f" at {died.culprit:#x} was written after it was freed" in died.found.what
    assert died.heapcheck["totals"]["damaged_chunks"] == 0
    (lists,) = [table for table in died.heapcheck["tables"] if table["name"] == "lists"]
    assert int(lists["rows"][0]["at"], 16) == died.culprit - 16
    assert len(lists["rows"]) == 1 or way == "small-bin-take"  # malloc had moved the chunk to a tcache


@pytest.mark.quick("tcache")
@pytest.mark.parametrize("way", GONE)
def test_a_written_block_that_malloc_has_taken_since(way: str, program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, way)
    died = _judged(core, (tmp_path / "said").read_text())
    assert died.how == "gone"
    assert died.found.kind == "write-after-free", died.found.what
    assert "malloc has taken it off its list since" in died.found.what
    assert died.heapcheck["totals"]["damaged_links"] == 1


@pytest.mark.quick("first", "first-smaller")
@pytest.mark.parametrize("way", BOUNDS)
def test_a_block_that_was_written_beyond_its_bounds(way: str, program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, way)
    died = _judged(core, (tmp_path / "said").read_text())
    assert died.how == ("under" if "first" in way else "over")
    assert died.found.kind == "heap-overrun", died.found.what
    assert f"the block at {died.culprit:#x} (" in died.found.what
    (chunks,) = [table for table in died.heapcheck["tables"] if table["name"] == "chunks"]
    assert {int(row["suspect"], 16) for row in chunks["rows"]} == {died.culprit}


@pytest.mark.parametrize("userland", RELEASES)
@pytest.mark.parametrize("way", OLD)
def test_other_releases_of_glibc(way: str, userland: str) -> None:
    with dumped_in(userland, SOURCE, ("gcc", "-O0", "-g", "-w"), way) as (core, root):
        died = _judged(core, (core.parent / "said").read_text(), str(root))
    known = f"{died.culprit:#x}" if died.how != "gone" else "taken it off its list since"
    assert died.found.kind == ("heap-overrun" if died.how in ("over", "under") else "write-after-free")
    assert known in died.found.what
