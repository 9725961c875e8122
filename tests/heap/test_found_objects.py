"""Old words behind the tables of ld.so, in a program that has lost blocks before it opens a library."""

from __future__ import annotations

import platform
from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT
from dmods.heap.heap import find_heap
from dmods.process.found_objects import false_pointers
from tests.corekit import compile_c, kernel_core

# All memory that dlopen() gets from malloc() was full of pointers to the lost blocks before.
_OPENS = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define LOST 400
#define HIDDEN 0x5555555555555555
#define ROOM 100000
static uintptr_t *volatile room;
__attribute__((noinline)) static void lose(FILE *truth) {
    uintptr_t *volatile all = malloc(LOST * sizeof *all);
    for (int n = 0; n < LOST; n++)
        fprintf(truth, "%lu ", (unsigned long)((all[n] = (uintptr_t)memset(malloc(200), 0, 200)) ^ HIDDEN));
    room = malloc(ROOM);
    for (size_t n = 0; n < ROOM / sizeof *room; n++)
        room[n] = all[n % LOST];
    memset(all, 0, LOST * sizeof *all);
    free(all);
    all = NULL;
}
__attribute__((noinline)) static int clean(int depth) {
    volatile char bytes[4096];
    memset((char *)bytes, 0, sizeof bytes);
    return depth ? clean(depth - 1) + bytes[depth] : 0;
}
/* Names of libraries get blocks without old words. */
__attribute__((noinline)) static void fill_caches(void) {
    void *volatile blocks[64][7];
    for (int size = 0; size < 64; size++)
        for (int n = 0; n < 7; n++)
            blocks[size][n] = calloc(1, 16 * size + 24);
    for (int size = 0; size < 64; size++)
        for (int n = 0; n < 7; n++)
            free(blocks[size][n]);
}
int main(void) {
    FILE *truth = fopen("truth", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    fill_caches();
    lose(truth);
    fprintf(truth, "%lu", (unsigned long)room ^ HIDDEN);
    void *volatile after = malloc(100);
    uintptr_t *old = room;
    room = NULL;
    free(old);
    old = NULL;
    void *volatile opened = dlopen("libm.so.6", RTLD_NOW);
    clean(20);
    if (!opened || !after)
        return 1;
    abort();
}
"""
_HIDDEN, _ROOM = 0x5555555555555555, 100_000


def test_old_words_in_the_tables_of_libraries_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "opens.c").write_text(_OPENS)
    program = compile_c(tmp_path / "opens.c", tmp_path / "opens", "-ldl")
    target = CoreFile(str(kernel_core(program, tmp_path)))
    *lost, room = (int(word) ^ _HIDDEN for word in (tmp_path / "truth").read_text().split())
    if [int(part) for part in platform.libc_ver()[1].split(".")] >= [2, 35]:
        words = target.image().read(room, _ROOM)
        kept = {int.from_bytes(words[at : at + 8], "little") for at in range(0, _ROOM, 8)}
        assert len(kept.intersection(lost)) > 50
        assert any(room <= start < end <= room + _ROOM for start, end in false_pointers(target))
    heap = find_heap(target)
    assert sorted(block.address for block in heap.blocks(DIRECT)) == sorted(lost)
