"""The content of large anonymous mappings. The program says with what it filled each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmods.base.ranges import Ranges
from dmods.corefile.target import CoreFile
from dmods.heap.mapping_content import Content, content_of
from dmods.process.mappings import mapping_at
from dmods.triage.process import triage_process
from fixtures import answers, audited
from tests.corekit import compile_c, kernel_core

PROGRAM = """
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static size_t size;
static FILE *truth;
/* A page that cannot be accessed keeps neighbours apart: the kernel would join them. */
static unsigned char *map(const char *name, int more) {
    unsigned char *at = mmap(0, size + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, size, PROT_READ | PROT_WRITE | more);
    fprintf(truth, "%s %lx\\n", name, (unsigned long)at);
    return at;
}
__attribute__((noinline)) unsigned char *fill_large(void) { return map("sparse", 0); }
int main(int argc, char **argv) {
    size = (size_t)atol(argv[1]) << 10;
    truth = fopen("truth", "w");
    unsigned long state = 88172645463325252ul;
    unsigned char *large = fill_large();
    for (size_t at = 0; at < size; at += 16 * 4096) *(void **)(large + at) = large + at;
    if (argc > 2) fclose(truth), raise(SIGQUIT);
    map("untouched", 0);
    *(volatile char *)map("zeros", 0) = 0;
    unsigned char *byte = map("byte", 0), *text = map("text", 0), *code = map("code", PROT_EXEC);
    unsigned long *word = (void *)map("word", 0), *pointers = (void *)map("pointers", 0);
    unsigned long *numbers = (void *)map("numbers", 0), *random = (void *)map("random", 0);
    memset(byte, 0xa5, size);
    memset(code, 0x90, size);
    for (size_t at = 0; at + 32 <= size; at += 32) memcpy(text + at, "a line of a log, number 1234567\\n", 32);
    for (size_t at = 0; at < size / 8; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        word[at] = 0xdeadbeefcafe;
        pointers[at] = at % 3 ? at : (unsigned long)(pointers + at);
        numbers[at] = at * 7;
        random[at] = state;
    }
    fclose(truth);
    raise(SIGQUIT);
}
"""
PHRASES = {
    # The kernel leaves such memory out (fs/coredump.c, vma_dump_size: no anon_vma).
    "untouched": "not in the dump: it was never written, or the dump is cut",
    "zeros": "zeros (never written, or cleared)",
    "byte": "the byte 0xa5, repeated",
    "word": "the word 0xdeadbeefcafe, repeated",
    "text": "text",
    "pointers": "pointers",
    "numbers": "numbers",
    "random": "compressed or random data",
    "code": "code made at run time: the byte 0x90, repeated",
    "sparse": "sparse: 6 % of its pages hold pointers",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("mapped")
    (where / "mapped.c").write_text(PROGRAM)
    return compile_c(where / "mapped.c", where / "mapped")


def _held(core: CoreFile, truth: Path) -> dict[str, Content]:
    mapped = Ranges((each.start, each.end) for each in core.mappings() if each.flags != "---")
    found = {}
    for line in truth.read_text().splitlines():
        name, address = line.split()
        mapping = mapping_at(core, int(address, 16))
        assert mapping is not None
        found[name] = content_of(core, mapping, mapped)
    return found


def test_each_mapping_holds_what_the_program_wrote(program: Path, tmp_path: Path) -> None:
    found = _held(CoreFile(str(kernel_core(program, tmp_path, "256"))), tmp_path / "truth")
    assert {name: each.phrase for name, each in found.items()} == PHRASES
    assert not any(word in each.public for each in found.values() for word in ("0xa5", "0xdead", "0x90"))
    assert found["sparse"].used == pytest.approx(1 / 16)


@pytest.mark.thorough("it takes a core of 64 MB under the auditor")
def test_maps_names_large_mappings_and_who_made_them(program: Path, tmp_path: Path) -> None:
    core = kernel_core(program, tmp_path, str(64 << 10), "large", env=audited.environment("audit,maps"))
    start = (tmp_path / "truth").read_text().split()[1]
    (row,) = (
        row
        for row in answers.by_name(answers.answer(CoreFile(str(core)), "maps", "--contents"))["contents"]
        if row["start"] == f"0x{start}"
    )
    assert row["bytes"] == 64 << 20
    assert re.fullmatch(r"sparse: \d+ % of its pages hold pointers", row["content"])
    assert row["used"] == pytest.approx(6.25, abs=3)
    assert row["maker"].startswith("mmap in ")
    assert "map" in row["maker"]
    memory = triage_process(CoreFile(str(core))).memory
    assert memory is not None
    (part,) = (part for part in memory.parts if part.name == "other anonymous memory")
    assert part.note.endswith(f"the largest mapping, 64M, holds {row['content']}")
    core.unlink()
