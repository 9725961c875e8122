/* Misuse memory in the way that NAME says: misuse NAME. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))

static char *volatile block, *volatile other;

FRAME static void guilty(void) { free(block); }

static int is(const char *name, const char *wanted) { return strcmp(name, wanted) == 0; }

static int all(const char *p, size_t size, uint32_t word) {
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)p[i] != (unsigned char)(word >> 8 * (i % 4)))
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    block = malloc(100);
    other = malloc(100);
    printf("%p\n", (void *)block);
    fflush(stdout);
    if (is(name, "overrun")) {
        block[100] = 0;
        guilty();
    } else if (is(name, "overrun-realloc")) {
        block[107] = 0;
        block = realloc(block, 10000);
    } else if (is(name, "double")) {
        guilty();
        guilty();
    } else if (is(name, "interior")) {
        block += 16;
        guilty();
    } else if (is(name, "foreign")) {
        static char no_block[64];
        block = no_block + 16;
        guilty();
    } else if (is(name, "patterns")) {
        if (!all(block, 100, 0xbaddcafe))
            return 3;
        memset(block, 1, 100);
        block = realloc(block, 3000);
        for (int i = 0; i < 100; i++)
            if (block[i] != 1)
                return 4;
        if (!all(block + 100, 2900, 0xbaddcafe))
            return 5;
        if (malloc_usable_size(block) != 3000)
            return 6;
        memset(block, 2, malloc_usable_size(block));
        char *freed = block;
        guilty();
        __asm__ volatile("" : "+r"(freed));
        if (!all(freed + 64, 2900, 0xdeadbeef)) /* glibc's links lie at the start and at the end */
            return 7;
        char *zero = calloc(10, 10);
        for (int i = 0; i < 100; i++)
            if (zero[i] != 0)
                return 8;
        free(other);
    }
    return 0;
}
