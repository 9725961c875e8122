// Blocks with mappings of their own, which the kernel has cut in pieces: the program advised, locked or protected a part, or
// mapped a file over it. Half of the blocks are held, the others are not. A lost one holds a small block. The sizes differ,
// so that each is known by its size. "guard" makes stacks of coroutines: a block with a page that nobody can access.

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 20, SIZE = 1 << 20, SMALL = 3000, PAGE = 4096 };

char *volatile held[BLOCKS];

static void cut(const char *how, char *start, size_t size) {
    if (!strcmp(how, "advise")) madvise(start, size, MADV_HUGEPAGE);
    if (!strcmp(how, "fork")) madvise(start + PAGE, 16 * PAGE, MADV_DONTFORK);
    if (!strcmp(how, "lock")) mlock(start + 4 * PAGE, PAGE);
    if (!strcmp(how, "dump")) madvise(start + 4 * PAGE, 16 * PAGE, MADV_DONTDUMP);
    if (!strcmp(how, "protect")) mprotect(start + 4 * PAGE, 2 * PAGE, PROT_READ);
    if (!strcmp(how, "guard")) mprotect(start, PAGE, PROT_NONE);
    if (!strcmp(how, "file")) {
        int file = open("/proc/self/exe", O_RDONLY);
        mmap(start + 32 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
        close(file);
    }
}

__attribute__((noinline)) static void fill(const char *how) {
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = SIZE + i * 16 * PAGE;
        char *block = malloc(size);
        memset(block, 'x', size);
        if (i % 2) {
            held[i] = block;
        } else {
            char **small = malloc(SMALL);
            memset(small, 'y', SMALL);
            *(char ***)(block + 48 * PAGE) = small;
        }
        char *page = block + (PAGE - (uintptr_t)block % PAGE);
        cut(how, page, (size - (size_t)(page - block)) / PAGE * PAGE);
    }
}

__attribute__((noinline)) static void wipe(void) {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 1;
}

int main(int argc, char **argv) {
    fill(argc > 1 ? argv[1] : "");
    wipe();
    if (argc > 2) {
        puts("ready");
        fflush(stdout);
        for (;;) pause();
    }
    abort();
}
