"""Pointers in machine code that a program made at run time, as JIT compilers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT
from dmods.heap.heap import find_heap
from fixtures.answers import answer, by_name
from tests.corekit import compile_c, kernel_core

# `mov rax, imm64` at `at` has the address of one block two bytes later. The other block is lost. The code is never run.
JIT = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) static void emit(unsigned char *at) {
    void *held = calloc(1, 104), *lost = calloc(1, 200);
    memcpy(at, "\x48\xb8", 2);
    memcpy(at + 2, &held, sizeof held);
    __asm__ volatile("" : : "r"(lost)); // so that the call stays
}
__attribute__((noinline)) static void wipe(void) {
    volatile char frame[4096];
    for (int i = 0; i < 4096; i++)
        frame[i] = 0;
}
int main(int argc, char **argv) {
    int twice = strcmp(argv[2], "code in a memfd") == 0, file = twice ? memfd_create("jit", 0) : -1;
    int flags = twice ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    if (twice && ftruncate(file, 8192) != 0)
        return 1;
    unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE, flags, file, 0);
    emit(code + atoi(argv[1]));
    if (twice && mmap(NULL, 8192, PROT_READ | PROT_EXEC, flags, file, 0) != MAP_FAILED)
        munmap(code, 8192);
    if (strcmp(argv[2], "code") == 0)
        mprotect(code, 8192, PROT_READ | PROT_EXEC);
    wipe();
    abort();
}
"""


@pytest.mark.parametrize(
    ("at", "kind", "lost"),
    [
        (0, "code in a memfd", {200}),
        (1, "code in a memfd", {200}),
        (1, "code", {200}),
        (4093, "code", {200}),
        (1, "data", {104, 200}),
        (6, "data", {200}),
    ],
)
def test_an_instruction_holds_a_block_at_any_byte(tmp_path: Path, at: int, kind: str, lost: set[int]) -> None:
    source = tmp_path / "jit.c"
    source.write_text(JIT)
    core = kernel_core(compile_c(source, tmp_path / "jit"), tmp_path, str(at), kind)
    target = CoreFile(str(core))
    heap = find_heap(target)
    assert {block.size for block in heap.blocks(DIRECT)} == lost


def test_owners_and_whatis_name_the_code(tmp_path: Path) -> None:
    source = tmp_path / "jit.c"
    source.write_text(JIT)
    target = CoreFile(str(kernel_core(compile_c(source, tmp_path / "jit"), tmp_path, "1", "code")))
    names = [row["owner"] for row in by_name(answer(target, "owners"))["owners"]]
    assert "code that the program made" in names
