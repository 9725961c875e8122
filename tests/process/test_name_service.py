"""Old words in the memory of glibc's name service: a program has lost blocks before it asks for a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT
from dmods.heap.heap import find_heap
from dmods.process.name_service import false_pointers
from tests.corekit import compile_c, dumped_in, kernel_core

# All memory that the name service gets from malloc() was full of pointers to the lost blocks before.
_ASKS = """
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define LOST 300
#define HIDDEN 0x5555555555555555
#define ROOM 200000
int __nss_configure_lookup(const char *database, const char *services);
static uintptr_t *volatile room;
__attribute__((noinline)) static void lose(FILE *truth) {
    uintptr_t *volatile all = calloc(LOST, sizeof *all);
    for (int n = 0; n < LOST; n++)
        fprintf(truth, "%lu ", (unsigned long)((all[n] = (uintptr_t)memset(malloc(200), 0, 200)) ^ (uintptr_t)HIDDEN));
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
__attribute__((noinline)) static void fill_caches(void) {
    void *volatile blocks[64][7];
    for (int size = 0; size < 32; size++) // the small ones: names, and lists of what to do
        for (int n = 0; n < 7; n++)
            blocks[size][n] = calloc(1, 16 * size + 8);
    for (int size = 0; size < 32; size++)
        for (int n = 0; n < 7; n++)
            free(blocks[size][n]);
}
int main(void) {
    FILE *truth = fopen("truth", "w");
    setvbuf(truth, NULL, _IONBF, 0);
    fill_caches();
    lose(truth);
    void *volatile after = malloc(100);
    uintptr_t *old = room;
    room = NULL;
    free(old);
    old = NULL;
    __nss_configure_lookup("passwd", "files nonesuch");
    __nss_configure_lookup("group", "files neither");
    struct passwd entry, *user = NULL;
    static char own[4096];
    if (access("/etc/passwd", R_OK)) // another userland may have no users, and then no answer in the buffers
        getpwnam_r("root", &entry, own, sizeof own, &user);
    else if (!getpwnam("root") || !getgrnam("root"))
        return 1;
    clean(20);
    if (!after)
        return 1;
    abort();
}
"""
_HIDDEN = 0x5555555555555555


def judged(target: CoreFile, said: str) -> tuple[list[int], list[int]]:
    """Return the blocks that dmods calls leaked, and those that the program lost.

    Functions for strings (EVEX) leave old words of buffers in vector registers. A block is not lost if dmods says that
    only such a register holds it.
    """
    heap = find_heap(target)
    by_vectors = {address for address, _count in heap.leaks().by_vectors}
    mask = (1 << 8 * target.arch.word) - 1
    lost = {int(word) ^ (_HIDDEN & mask) for word in said.split()} - by_vectors
    return sorted(block.address for block in heap.blocks(DIRECT)), sorted(lost)


def test_old_words_in_modules_and_buffers_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "asks.c").write_text(_ASKS)
    program = compile_c(tmp_path / "asks.c", tmp_path / "asks")
    target = CoreFile(str(kernel_core(program, tmp_path)))
    found, lost = judged(target, (tmp_path / "truth").read_text())
    assert len(lost) > 250
    assert [block for block in lost if block not in found] == []
    assert [end - start for start, end in false_pointers(target)].count(1024) == 2  # the buffers


@pytest.mark.parametrize("userland", ["bullseye", "trixie", "sid", "i386-bookworm"])
def test_other_releases_of_glibc(userland: str, tmp_path: Path) -> None:
    """There is no user, so that the modules are tried and fail."""
    (tmp_path / "asks.c").write_text(_ASKS)
    with dumped_in(userland, tmp_path / "asks.c", ["gcc", "-O1"]) as (core, sysroot):
        target = CoreFile(str(core), sysroot=str(sysroot))
        found, lost = judged(target, (core.parent / "truth").read_text())
        # 2.31 has no such modules. It notes each function that it looked up in a block of three words, and uses two.
        old = userland == "bullseye"
        assert len([block for block in lost if block not in found]) <= (2 if old else 0)
        assert bool(list(false_pointers(target))) != old
