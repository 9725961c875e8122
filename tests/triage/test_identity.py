"""Whose dump it is, how far it can be trusted, its limits, its signature, and what every check measured."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.answer import FOUND, NOT_RUN, PASSED, Triage
from dmods.triage.fleet.store import rows_of
from dmods.triage.process import triage_process
from dmods.triage.report import crash_signature, triage_report
from dmods.triage.runner import discover
from dmods.triage.signature import signature
from fixtures import answers, planted
from tests.corekit import compile_c, kernel_core

PROGRAM = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
int main(int argc, char **argv) {
    char *volatile block = malloc(100);
    if (argv[1][0] == 'f') {
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){16, 16});
        while (open("/dev/null", O_RDONLY) >= 0) ;
    }
    /* Pages with other rights than their neighbours: each is a mapping. */
    long count = atol(argv[2]);
    char *pages = mmap(0, (count + 1) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long n = 1; n < count; n += 2)
        if (mprotect(pages + n * 4096, 4096, PROT_READ)) exit(1);
    abort();
    return block != 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("identity")
    (where / "who.c").write_text(PROGRAM)
    return compile_c(where / "who.c", where / "who", "-w")


@pytest.fixture(scope="module")
def core(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel_core(program, tmp_path_factory.mktemp("core"), "plain", "0")


def _lines(found: Triage) -> dict[str, str]:
    return {line.name: line.text for line in (*found.identity, *found.trust)}


def test_who_it_was(program: Path, core: Path) -> None:
    target = CoreFile(str(core))
    shown = _lines(triage_process(target))
    assert shown["program"].startswith(f"{program}, build-id ")
    assert shown["pid"] == str(target.pid)
    assert shown["arguments"] == "plain 0"
    version = ".".join(platform.release().split("-")[0].split(".")[:2])
    assert shown["system"].startswith(f"Linux {version}")
    assert "and are the same" in shown["files"]
    private = _lines(triage_process(CoreFile(str(core)), private=True))
    assert "plain" not in private["arguments"]


def test_a_cut_dump_says_how_much_is_missing(core: Path, tmp_path: Path) -> None:
    cut = tmp_path / "core.cut"
    shutil.copy(core, cut)
    size = cut.stat().st_size - 50_000
    with cut.open("r+b") as file:
        file.truncate(size)
    assert "the dump is cut: 50,000 bytes" in _lines(triage_process(CoreFile(str(cut))))["memory"]
    assert "the dump is whole" in _lines(triage_process(CoreFile(str(core))))["memory"]


def test_every_check_has_a_result(core: Path) -> None:
    found = triage_process(CoreFile(str(core)))
    assert [each.check for each in found.results] == [check.name for check in discover("dmods.triage.checks")]
    by_state = {state: {each.check for each in found.results if each.state == state} for state in (PASSED, FOUND)}
    assert by_state[FOUND] == {"death"}
    assert not [each for each in found.results if each.state == NOT_RUN]
    assert all(each.value and each.rule for each in found.results)
    assert next(each.value for each in found.results if each.check == "death").startswith("abort; SIGABRT")


def test_no_descriptor_left(program: Path, tmp_path: Path) -> None:
    found = triage_process(CoreFile(str(kernel_core(program, tmp_path, "files", "0"))))
    assert [(each.kind, each.check) for each in found.findings] == [("abort", "death"), ("limit", "limits")]
    assert "EMFILE" in found.findings[1].what


@pytest.mark.thorough("it makes a core of 63,000 segments")
def test_nearly_no_mapping_left(program: Path, tmp_path: Path) -> None:
    found = triage_process(CoreFile(str(kernel_core(program, tmp_path, "maps", "63000"))))
    (limit,) = (each for each in found.findings if each.kind == "limit")
    assert 63_000 <= limit.weight <= 63_100
    assert "65,530" in limit.what


def test_the_signature_is_that_of_reports_on_many_dumps(core: Path) -> None:
    found = triage_process(CoreFile(str(core)))
    named = crash_signature(found)
    assert named is not None
    assert named.text == "abort | main"
    said = answers.typed("triage", core)
    totals = said["totals"]
    ended = rows_of(said, "crash")[0]["ended"]
    again = signature(totals["program"], "abort", ended, rows_of(said, "places"))
    assert (totals["signature"], totals["signature_exact"], totals["signature_loose"]) == tuple(again) == tuple(named)


@pytest.mark.thorough("it makes a core of each fault")
def test_who_noticed_is_kept_apart_from_whose_memory_it_was() -> None:
    for fault in ("overrun", "double-free", "use-after-free"):
        found = triage_process(CoreFile(str(planted.core("c", fault))))
        first = found.findings[0]
        assert first.parties.noticed != first.parties.hurt
        assert first.parties.hurt.startswith(("the block at 0x", "the chunk at 0x"))
        assert first.alternative
        assert first.remedy_confidence in ("certain", "likely", "possible")
        report = triage_report(found, "process", whole=True)
        text = [str(row[0]) for row in next(table for table in report.tables if table.name == "verdict").rows]
        assert any(line.startswith("   who: noticed by ") for line in text)
        assert any(line.startswith("   or: ") for line in text)
