"""A process whose first call of malloc's family is free(): glibc has no main arena then, and nothing is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.triage.process import triage_process
from fixtures import answers
from tests.corekit import compile_c, kernel_core

# Each way frees once, before anything was allocated, and writes into no heap.
PROGRAM = """
#include <signal.h>
#include <stdlib.h>
static long space[64] __attribute__((aligned(16)));
static void *volatile kept[2];
int main(int argc, char **argv) {
    if (argv[1][0] == 'i') free((char *)space + 24);       /* malloc complains: no block begins there */
    space[1] = space[9] = 0x41;
    free(space + 2);                                       /* malloc takes it for a block of 56 bytes */
    if (argv[1][0] == 'm') kept[0] = malloc(56), kept[1] = malloc(100000);
    raise(SIGQUIT);
}
"""


@pytest.mark.parametrize("way", ["invalid", "accepted", "malloc"])
def test_a_first_free_damages_nothing(way: str, tmp_path: Path) -> None:
    (tmp_path / "first.c").write_text(PROGRAM)
    program = compile_c(tmp_path / "first.c", tmp_path / "first", "-w", "-fno-builtin")
    core = CoreFile(str(kernel_core(program, tmp_path, way)))
    answer = answers.answer(core, "heapcheck")
    assert answer["totals"]["problems"] == 0, answer["tables"]
    assert [note for note in answer["notes"] if "damage" in note] == []
    found = [each.kind for each in triage_process(core).findings]
    assert found == (["invalid-free"] if way == "invalid" else [])
