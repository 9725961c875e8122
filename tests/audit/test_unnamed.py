"""The auditor's tables in cores that do not say which files were mapped, and in cores that lack the tables' root."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from fixtures import answers
from tests.audit.auditor import environment
from tests.corekit import compile_c, kernel_core
from tests.dumpkit import NT_FILE, without, without_text

LOST = 47
# The log keeps the addresses of all blocks. So a log that counts as data of the program keeps all blocks alive.
WORDS = "audit,log"
PROGRAM = """
#include <stdlib.h>
#include <string.h>
void *kept[20];
__attribute__((noinline)) void work(void) {
    for (int i = 0; i < 20; i++)
        kept[i] = malloc(64);
    for (int i = 0; i < %d; i++)
        memset(malloc(100 + 8 * i), 1, 100);
}
__attribute__((noinline)) void scrub(void) {
    volatile char below[16384];
    for (unsigned i = 0; i < sizeof below; i++)
        below[i] = 0;
}
int main(void) { work(); scrub(); abort(); }
"""


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a core of the program under the auditor, without headers of ELF files (coredump_filter)."""
    folder = tmp_path_factory.mktemp("unnamed")
    (folder / "lost.c").write_text(PROGRAM % LOST)
    program = compile_c(folder / "lost.c", folder / "lost", "-O0")
    work = folder / "work"
    work.mkdir()
    return kernel_core(program, work, env=environment(WORDS), coredump_filter=0x23)


def test_the_tables_are_found_in_any_memory(audited: Path, tmp_path: Path) -> None:
    """Neither the program nor a library is found: no file is named, no header is there, and no file is here."""
    (tmp_path / "root").mkdir()
    core = CoreFile(str(without(audited, tmp_path / "core", NT_FILE)), sysroot=str(tmp_path / "root"))
    assert [module.name for module in core.modules()] == ["[vdso]"]
    report = answers.answer(core, "findleaks")
    assert report["totals"]["direct_count"] == LOST
    assert report["verdict"]["possible"]


def test_without_the_root_there_is_no_verdict(audited: Path, tmp_path: Path) -> None:
    path = without(audited, tmp_path / "core")
    without_text(path, b"DMODS-AUDIT-ROOT")
    report = answers.answer(CoreFile(str(path)), "findleaks")
    assert not report["verdict"]["possible"]
    assert "auditor" in report["verdict"]["reason"]
    assert report["status"] == 4
