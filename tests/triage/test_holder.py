"""`triage` always says who holds the most memory, also where nothing is wrong (tests/commands/shares.c)."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import CERTAIN, FATAL, Finding
from dmods.report import Verdict
from dmods.triage import holder
from dmods.triage.answer import Crash, Holder, Line, Triage, Unknown
from dmods.triage.html import html
from dmods.triage.process import triage_process
from dmods.triage.report import triage_report
from fixtures import answers
from tests.corekit import HERE, compile_c, kernel_core


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "commands" / "shares.c", tmp_path_factory.mktemp("shares") / "shares", "-g0", "-s")


def told(program: Path, where: Path, how: str) -> tuple[CoreFile, dict[str, int]]:
    """Return the target, and what the program said of itself."""
    core = kernel_core(program, where, how, output=where / "said")
    lines = (line.split() for line in (where / "said").read_text().splitlines())
    return CoreFile(str(core)), {name: int(value) for name, value in lines}


def held(found: Triage) -> Holder:
    assert found.holder is not None
    # It is no finding: the program died, and nothing else is wrong.
    assert [each.severity for each in found.findings] == [FATAL]
    return found.holder


def text_of(found: Triage) -> str:
    tables = (table for table in triage_report(found, "process").tables if table.only != "json")
    return "\n".join(str(row[0]) for table in tables for row in table.rows)


def test_the_line_has_what_suspects_says(program: Path, tmp_path: Path) -> None:
    target, truth = told(program, tmp_path, "statements")
    found = triage_process(target)
    line = held(found)
    (row,) = answers.by_name(answers.answer(target, "suspects"))["suspects"]
    assert f"{line.what[0].upper()}{line.what[1:]}." == row["sentence"]
    assert (line.bytes, line.is_suspect, line.next) == (truth["made"], True, ("suspects",))
    assert f"largest holder, a possible suspect: {line.what} (type: suspects)" in text_of(found)
    report = triage_report(found, "process")
    page = unescape(html(found, report, target, json.dumps({}))).replace("<code>", "`").replace("</code>", "`")
    assert line.what in page
    (row,) = answers.by_name(answers.answer(target, "triage"))["holder"]
    assert (row["bytes"], row["suspect"], row["next"]) == (truth["made"], True, ["suspects"])
    # Texts of the program are left out where contents are private.
    private = held(triage_process(target, private=True))
    assert "stmt_" not in private.what
    assert line.what.startswith(private.what)


def test_a_small_program_has_a_holder_that_is_no_suspect(program: Path, tmp_path: Path) -> None:
    target, truth = told(program, tmp_path, "magic")
    found = triage_process(target)
    line = held(found)
    assert (line.bytes, line.is_suspect) == (truth["made"], False)
    assert "\nlargest holder: `" in text_of(found)


def test_a_heap_that_is_well_distributed_has_one_too(program: Path, tmp_path: Path) -> None:
    target, truth = told(program, tmp_path, "spread")
    line = held(triage_process(target))
    assert 0 < line.bytes < truth["made"] / 5
    assert not line.is_suspect


def test_memory_outside_the_heap_is_named_by_its_content(program: Path, tmp_path: Path) -> None:
    target, truth = told(program, tmp_path, "outside")
    line = held(triage_process(target))
    assert (line.kind, line.address, line.bytes) == ("mapping", truth["outside"], 40 << 20)
    assert line.what.startswith("a mapping of 40M without blocks that dmods walks (anonymous memory at ")
    assert " holds text" in line.what
    assert line.next == ("maps -v --contents",)


@pytest.mark.parametrize("limit", ["MOST_BLOCKS", "MOST_TYPED"])
def test_a_huge_heap_has_a_shorter_answer(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """triage finds no owners of too many blocks, or reads no types of them. There are 9,000 blocks."""
    monkeypatch.setattr(holder, limit, 1000)
    target, truth = told(program, tmp_path, "statements")
    line = held(triage_process(target))
    assert (line.bytes, line.is_suspect, line.next) == (truth["made"], True, ("suspects",))
    assert "9,000 blocks of 2,056 bytes (one holds 'stmt_" in line.what
    assert ("; one of them hangs on `0x" in line.what) == (limit == "MOST_BLOCKS")


def test_a_heap_without_a_verdict_has_its_sizes(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, truth = told(program, tmp_path, "statements")
    monkeypatch.setattr(holder, "leak_verdict", lambda _heap: Verdict(False, "the dump lacks the program's data"))
    line = held(triage_process(target))
    assert (line.kind, line.bytes, line.is_suspect) == ("size", truth["made"], False)
    assert line.what.endswith("; the dump does not tell who holds them")
    assert line.next == ("owners --by size",)


def test_a_cut_dump_without_a_heap_has_its_largest_mapping(program: Path, tmp_path: Path) -> None:
    target, _truth = told(program, tmp_path, "statements")
    whole = Path(str(target.path))
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 3])
    line = triage_process(CoreFile(str(cut))).holder
    assert line is not None
    assert line.what.startswith("a mapping of ")
    assert line.kind == "mapping"


@pytest.mark.parametrize(("size", "shown"), [(64 << 20, True), (64 << 10, False)])
def test_a_full_screen_has_one_line_for_it(size: int, shown: bool) -> None:
    """A crashed program that holds little memory has no such line there. -v and JSON have it."""
    crash = Crash("it ended", False, [Line(f"fact {number}", "known") for number in range(12)], ["main+0x1"] * 9)
    findings = [Finding(f"kind {number}", FATAL, CERTAIN, "it broke", "mend it") for number in range(3)]
    line = Holder("the cache " * 30, "held", size, ("suspects",))
    found = Triage(crash, findings=findings, unknown=[Unknown("a part", "it is missing")], holder=line)
    cut = [text for text in text_of(found).splitlines() if "largest holder" in text]
    assert [len(text) <= 80 and text.endswith(".. (type: suspects)") for text in cut] == [True] * shown
    (table,) = (table for table in triage_report(found, "process").tables if table.name == "holder")
    assert table.rows[0][0] == line.what
    whole = triage_report(found, "process", whole=True).tables
    assert any(line.what in str(row[0]) for table in whole if table.only == "text" for row in table.rows)


def test_a_live_process_shows_all_of_it_before_its_first_thread() -> None:
    """Nothing is wrong, so any thread that waits says less than who holds the memory. The key stands at the end."""
    crash = Crash("the process was alive", True, [Line(f"fact {number}", "known") for number in range(5)], ["poll"] * 9)
    what = f"`server+0x40` keeps 96% of the heap in use alive: {'900,000 blocks, ' * 25}under the entry 'sessions:all'"
    gaps = [Unknown(f"part {number}", "a core does not have it") for number in range(3)]
    found = Triage(crash, unknown=gaps, holder=Holder(what, "held", 64 << 20, ("suspects",)))
    shown = text_of(found)
    assert f"largest holder: {what} (type: suspects)" in shown
    assert "poll" not in shown
    assert sum(1 + len(line) // 80 for line in shown.splitlines()) <= 23
    broken = Triage(crash, findings=[Finding("deadlock", FATAL, CERTAIN, "it waits", "mend it")], holder=found.holder)
    assert "poll" in text_of(broken)
