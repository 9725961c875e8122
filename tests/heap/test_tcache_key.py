"""glibc's `tcache_key`, a random number that may look like a pointer, in a program that has much data of its own."""

from __future__ import annotations

from pathlib import Path

from dmods.corefile.target import CoreFile
from dmods.heap.block import DIRECT
from dmods.heap.heap import find_heap
from fixtures.heaps import glibc
from tests.corekit import compile_c, kernel_core

# The library is static. The large array lies between its main_arena and its tcache_key.
_KEY = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char edata[], end[];
char room[1 << 20];
static char *volatile leaked;
int main(void) {
    FILE *truth = fopen("truth", "w");
    uintptr_t *volatile freed = malloc(40);
    free(freed);
    for (uintptr_t *at = (uintptr_t *)((uintptr_t)edata & -sizeof *at); at < (uintptr_t *)end; at++)
        if (*at == freed[1] && *at) {
            char *volatile lost = memset(malloc(5000), 0, 5000);
            fprintf(truth, "%lu %lu", (unsigned long)lost, (unsigned long)((char *)at - room));
            fclose(truth);
            *at = (uintptr_t)lost + 104;
            lost = NULL;
            free(malloc(56));
            abort();
        }
    return 1;
}
"""


def test_the_key_of_freed_blocks_is_no_pointer(tmp_path: Path) -> None:
    """The program gives `tcache_key` a value that leads into a block. It lies far behind main_arena."""
    (tmp_path / "key.c").write_text(_KEY)
    program = compile_c(tmp_path / "key.c", tmp_path / "key", "-static-pie", "-fno-builtin")
    heap = find_heap(CoreFile(str(kernel_core(program, tmp_path))))
    lost, apart = (int(word) for word in (tmp_path / "truth").read_text().split())
    assert apart >= 1 << 20
    assert lost + 104 in glibc(heap).caches.keys
    assert [block.address for block in heap.blocks(DIRECT)] == [lost]
