"""Mappings that nothing points to (tests/heap/lost_mappings.c): the program says which of its mappings it has lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.process import triage_process
from fixtures import answers, audited
from tests.corekit import HERE, compile_c, kernel_core

_Said = dict[int, tuple[str, int]]  # start: the name, the bytes that can be written


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "heap" / "lost_mappings.c", tmp_path_factory.mktemp("lost") / "lost", "-pthread")


def dumped(program: Path, where: Path, how: str, **more: dict[str, str]) -> tuple[Path, _Said]:
    core = kernel_core(program, where, how, output=where / "said", **more)
    lines = [line.split() for line in (where / "said").read_text().splitlines()]
    return core, {int(start, 16): (name, int(size)) for name, start, size in lines}


@pytest.fixture(scope="module")
def lossy(program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, _Said]:
    return dumped(program, tmp_path_factory.mktemp("lossy"), "l")


def named(said: _Said, *names: str) -> set[int]:
    return {start for start, (name, _size) in said.items() if name.split("-")[0] in names}


def test_exactly_the_lost_ones_are_listed(lossy: tuple[Path, _Said]) -> None:
    core, said = lossy
    answer = answers.answer(CoreFile(str(core)), "maps", "--leaked")
    tables = answers.by_name(answer)
    lost = named(said, "lost", "placed", "file")
    assert len(lost) == 14
    assert {int(row["start"], 16) for row in tables["leaked"]} == lost
    sizes = {start: size - (8192 if "pieces" in name else 0) for start, (name, size) in said.items()}
    assert [row["bytes"] for row in tables["leaked"]] == [sizes[int(row["start"], 16)] for row in tables["leaked"]]
    # A core does not say what a process has only read of a file.
    touched = [None if row["path"] else row["bytes"] for row in tables["leaked"]]
    assert [row["touched"] for row in tables["leaked"]] == touched
    assert touched.count(None) == 1
    assert answer["totals"]["leaked_bytes"] == sum(sizes[start] for start in lost)
    assert {int(row["start"], 16) for row in tables["doubtful"]} == named(said, "doubt")
    assert answer["verdict"] == {"possible": True, "reason": ""}


def test_triage_finds_them(lossy: tuple[Path, _Said]) -> None:
    core, said = lossy
    found = triage_process(CoreFile(str(core)), "mappings")
    (finding,) = found.findings
    assert (finding.kind, finding.confidence) == ("mapping-leak", "likely")
    assert "nothing points to 14 mappings (1 of files)" in finding.what
    assert {each.address for each in finding.evidence} <= named(said, "lost", "placed", "file")


def test_what_is_held_in_any_way_is_not_lost(program: Path, tmp_path: Path) -> None:
    core, said = dumped(program, tmp_path, "threads")
    assert len(named(said, "kept")) > 10
    target = CoreFile(str(core))
    tables = answers.by_name(answers.answer(target, "maps", "--leaked"))
    assert tables["leaked"] == []
    assert "doubtful" not in tables
    assert triage_process(target, "mappings").findings == []


def test_the_recorded_maker_is_named(program: Path, tmp_path: Path) -> None:
    core, said = dumped(program, tmp_path, "l", env=audited.environment("audit,maps"))
    answer = answers.answer(CoreFile(str(core)), "maps", "--leaked")
    tables = answers.by_name(answer)
    rows = {int(row["start"], 16): row for row in tables["leaked"]}
    assert set(rows) == named(said, "lost", "placed", "file")
    assert {row["call"] for row in rows.values()} == {"mmap"}
    frames = [{frame["name"].partition("+")[0] for frame in row["stack"]} for row in rows.values()]
    assert ["main" in names and bool(names & {"lose", "others"}) for names in frames] == [True] * 14
    assert sum(row["count"] for row in tables["makers"]) == 14


def test_a_dump_that_lacks_memory_has_no_verdict(lossy: tuple[Path, _Said], tmp_path: Path) -> None:
    core, _said = lossy
    cut = tmp_path / "cut"
    whole = core.read_bytes()
    cut.write_bytes(whole[: len(whole) * 3 // 4])
    target = CoreFile(str(cut))
    answer = answers.answer(target, "maps", "--leaked")
    assert answer["verdict"]["possible"] is False
    assert "leaked" not in answers.by_name(answer)
    found = triage_process(target, "mappings")
    assert found.findings == []
    assert any("truncated" in each.why for each in found.unknown)


@pytest.mark.quick("php8.2-php_module_startup-True-1", "jvm-JNI_CreateJavaVM-False-0")
@pytest.mark.parametrize(
    ("library", "symbol", "verdict", "findings"),
    [
        ("php8.2", "php_module_startup", True, 1),
        ("ruby-3.1", "ruby_init", True, 0),
        ("jvm", "JNI_CreateJavaVM", False, 0),
    ],
)
def test_runtimes_whose_heaps_are_reached_by_pointers_have_a_verdict(
    library: str, symbol: str, verdict: bool, findings: int, tmp_path: Path
) -> None:
    """The libraries are empty, so the answer has to be that of the program alone, or no verdict."""
    (tmp_path / "empty.c").write_text(f"void {symbol}(void) {{}}\n")
    path = tmp_path / f"lib{library}.so"
    compile_c(tmp_path / "empty.c", path, "-shared", "-fPIC")
    made = compile_c(HERE / "heap" / "lost_mappings.c", tmp_path / "lost", "-pthread", "-Wl,--no-as-needed", str(path))
    core, said = dumped(made, tmp_path, "l")
    target = CoreFile(str(core))
    answer = answers.answer(target, "maps", "--leaked")
    rows = answers.by_name(answer).get("leaked", [])
    assert answer["verdict"]["possible"] == verdict
    assert {int(row["start"], 16) for row in rows} == (named(said, "lost", "placed", "file") if verdict else set())
    assert ("as an Integer" in answer["verdict"]["reason"]) == (library == "ruby-3.1")
    assert len(triage_process(target, "mappings").findings) == findings
