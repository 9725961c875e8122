"""Mappings of files that nothing points to (tests/heap/lost_files.c): the program says which of them it has lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.process import triage_process
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core

_FILTERS = {"default": 0x33, "all": 0x7F}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "heap" / "lost_files.c", tmp_path_factory.mktemp("files") / "lost", "-ldl")


def _dumped(program: Path, where: Path, *how: str, dumps: str = "default") -> tuple[Path, list[tuple[str, int, int]]]:
    file = where / "records.db"
    file.write_bytes(bytes(range(256)) * 16 * 32)
    core = kernel_core(program, where, str(file), *how, output=where / "said", coredump_filter=_FILTERS[dumps])
    lines = [line.split() for line in (where / "said").read_text().splitlines()]
    return core, [(name, int(start, 16), int(size)) for name, start, size in lines]


def _covered(rows: list[Any], said: list[tuple[str, int, int]], name: str) -> list[int]:
    """Return the mappings of that name that the rows cover. Neighbours that go on in the file are one row."""
    parts = [(int(row["start"], 16), int(row["end"], 16)) for row in rows]
    return [at for kind, at, size in said if kind == name and any(s <= at and at + size <= e for s, e in parts)]


@pytest.mark.quick("default")
@pytest.mark.parametrize("dumps", [*_FILTERS])
def test_lost_mappings_of_files_are_listed(program: Path, tmp_path: Path, dumps: str) -> None:
    core, said = _dumped(program, tmp_path, dumps=dumps)
    target = CoreFile(str(core))
    answer = answers.answer(target, "maps", "--leaked")
    tables = answers.by_name(answer)
    lost = [at for name, at, _size in said if name == "lost"]
    assert len(lost) == 18
    assert _covered(tables["leaked"], said, "lost") == lost
    assert _covered(tables["leaked"], said, "kept") == []
    assert {row["path"] for row in tables["leaked"]} == {str(tmp_path / "records.db")}
    assert answer["totals"]["leaked_bytes"] == sum(size for name, _at, size in said if name == "lost")
    assert "doubtful" not in tables
    (finding,) = triage_process(target, "mappings").findings
    assert (finding.kind, finding.confidence) == ("mapping-leak", "likely")
    assert " of files" in finding.what
    assert "records.db" in finding.evidence[0].what
    (private,) = triage_process(CoreFile(str(core)), "mappings", private=True).findings
    assert "records.db" not in repr(private)


def test_mappings_that_are_held_and_those_of_libraries_are_not_lost(program: Path, tmp_path: Path) -> None:
    core, said = _dumped(program, tmp_path, "kept")
    assert [name for name, _at, _size in said] == ["kept"] * 30
    target = CoreFile(str(core))
    paths = {mapping.path or "" for mapping in target.mappings()}
    assert any("gconv-modules.cache" in path for path in paths)
    tables = answers.by_name(answers.answer(target, "maps", "--leaked"))
    assert tables["leaked"] == []
    assert "doubtful" not in tables
    assert triage_process(target, "mappings").findings == []
