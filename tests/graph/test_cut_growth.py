"""growth and owners on cores that were cut in the middle of the heap: what is missing neither shrank nor is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.corekit import compile_c, kernel_core
from tests.graph.typed import HERE

_NODE = 72  # usable bytes
_STEP = 30000


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("grows")
    program = compile_c(HERE / "grows.c", where / "grows", "-static")
    found = []
    for step in range(3):
        folder = where / f"step{step}"
        folder.mkdir()
        found.append(kernel_core(program, folder, str(step)))
    return found


def cut(core: Path, to: Path, part: float) -> Path:
    content = core.read_bytes()
    to.write_bytes(content[: int(len(content) * part)])
    return to


def compared(*cores: Path) -> dict[str, Any]:
    *older, last = cores
    return answers.answer(CoreFile(str(last)), "growth", *map(str, older))


def said(*cores: Path) -> tuple[str, list[str]]:
    """Return all findings as one text, and the notes."""
    answer = compared(*cores)
    findings = next(table for table in answer["tables"] if table["name"] == "findings")
    return " ".join(row["finding"] for row in findings["rows"]), answer["notes"]


def test_the_whole_cores(cores: list[Path]) -> None:
    text, notes = said(*cores)
    # The node at the end of the list has no pointer, and thus another shape.
    assert f"grew by {(2 * _STEP - 1) * _NODE} bytes" in text
    assert not [note for note in notes if "what is leaked is not known" in note]


@pytest.mark.parametrize("part", [0.7, 0.4, 0.15])
def test_what_a_cut_core_lacks_has_not_shrunk(cores: list[Path], tmp_path: Path, part: float) -> None:
    short = cut(cores[2], tmp_path / "short", part)
    text, notes = said(cores[0], short)
    assert "fragmentation" not in text
    assert "did not grow" not in text
    assert ("is not known whether the blocks in use grew" in text) == (part < 0.2)
    assert any(note.startswith("short: what is leaked is not known: ") for note in notes) or part < 0.5
    # Nor is it the whole heap.
    owners = answers.text(CoreFile(str(short)), "owners")
    assert "the whole heap" not in owners


@pytest.mark.parametrize("part", [0.9, 0.4, 0.15])
@pytest.mark.parametrize("place", [0, 1])
def test_a_cut_core_has_no_verdict_and_no_leaks(cores: list[Path], tmp_path: Path, part: float, place: int) -> None:
    """The stacks are the last part of a core: without them nobody knows what leaked."""
    pair = [cores[0], cores[2]]
    pair[place] = cut(pair[place], tmp_path / "short", part)
    answer = compared(*pair)
    assert answer["status"] == 4
    assert not answer["verdict"]["possible"]
    assert answer["verdict"]["reason"].startswith("short: ")
    uses = {row["use"]: row for row in answers.by_name(answer)["memory"]}
    assert "leaked" not in uses
    (whole,) = answers.by_name(compared(cores[2], cores[0]))["memory"][:1]
    # The whole core of the two has all that it has beside any other.
    side, other = ("old_bytes", "now_bytes") if place else ("now_bytes", "old_bytes")
    assert uses["in use or leaked"][side] == whole[other]
    for key in ("state", "owner"):
        rows = compared_by(key, *pair)
        assert not [row for row in rows if "leaked" in row["key"]]
    text, _notes = said(*pair)
    assert "leak" not in text
    assert "grew by at least" in text or part < 0.2 or place == 0


def compared_by(key: str, *cores: Path) -> list[dict[str, Any]]:
    *older, last = cores
    answer = answers.answer(CoreFile(str(last)), "growth", *map(str, older), "--by", key)
    return answers.by_name(answer)["growth"]


def test_what_the_first_core_lacks_is_possible_at_most(cores: list[Path], tmp_path: Path) -> None:
    short = cut(cores[0], tmp_path / "short", 0.5)
    answer = answers.answer(CoreFile(str(cores[2])), "growth", str(short), str(cores[1]))
    findings = next(table for table in answer["tables"] if table["name"] == "findings")
    assert {row["confidence"] for row in findings["rows"]} == {"possible"}
