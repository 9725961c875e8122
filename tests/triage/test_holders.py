"""Who holds the memory of a process that ran out of it, or whose heap is large. The program says who."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.finding import Finding
from dmods.triage.checks import exhausted
from dmods.triage.process import triage_process
from fixtures import audited
from tests.corekit import compile_c, kernel_core

PROGRAM = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
void **table_of_orders;
static void *other[4];
__attribute__((noinline)) void *map_log(size_t size) {
    char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) for (size_t n = 0; n + 16 <= size; n += 16) memcpy(at + n, "order 1234 lost\\n", 16);
    return at;
}
int main(int argc, char **argv) {
    table_of_orders = calloc(4000, sizeof(void *));
    for (int n = 0; n < 4000; n++) memset(table_of_orders[n] = malloc(1000), 1, 1000);
    for (int n = 0; n < 4; n++) memset(other[n] = malloc(20000), 1, 20000);
    if (argv[1][0] == 'm') {
        struct rlimit limit = {96 << 20, 96 << 20};
        map_log(40 << 20);
        setrlimit(RLIMIT_AS, &limit);
        if (!malloc(200 << 20)) abort();
    }
    raise(SIGQUIT);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("holders")
    (where / "holders.c").write_text(PROGRAM)
    return compile_c(where / "holders.c", where / "holders", "-w", "-fno-builtin", "-fno-inline")


def _holders(core: CoreFile) -> list[Finding]:
    return [each for each in triage_process(core).findings if each.kind == "memory-holder"]


def test_a_large_heap_that_one_thing_holds(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreFile(str(kernel_core(program, tmp_path, "table")))
    assert _holders(core) == []
    monkeypatch.setattr(exhausted, "LARGE", 3 << 20)
    (found,) = _holders(core)
    assert "table_of_orders" in found.what
    assert (found.severity, found.confidence) == ("waste", "possible")
    assert found.subject == "`table_of_orders` (holders)"


@pytest.mark.thorough("it runs out of memory under the auditor")
def test_mappings_of_a_process_that_ran_out_of_memory(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, "mapped", env=audited.environment("audit,maps"))
    found = _holders(CoreFile(str(core)))
    mapped = next(each for each in found if "outside the heap" in each.what)
    assert mapped.what.startswith("1 large mapping outside the heap has 40M (")
    assert re.fullmatch(r"40M, mapped by map_log\+0x[0-9a-f]+: text", mapped.evidence[0].what)
    core.unlink()
