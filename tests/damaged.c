/* Damage the heap in one place and die: damaged FILE MODE. The file tells what glibc said before (mallinfo2), and
 * addresses. The modes:
 *   "top-ones", "top-text"   bytes beyond the end of the last block, over the size of the top chunk
 *   "top-far"                a size of the top chunk that is plausible, and 16 MiB too large
 *   "thread-top"             "top-ones" in the arena of a thread
 *   "sound"                  nothing */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 200 };
static char *volatile kept[COUNT];
static FILE *file;
static const char *mode;

static int is(const char *name) { return strcmp(mode, name) == 0; }

static void tell(const char *what, unsigned long value) { fprintf(file, "%s %#lx\n", what, value); }

/* As no compiler that looks would let it. */
static void put(volatile char *at, int value, size_t count) {
    while (count--)
        *at++ = (char)value;
}

/* Return the block before the top chunk: sizes that no free chunk has come from top. */
static char *last(void) {
    for (int i = 0; i < COUNT; i++) {
        kept[i] = malloc(3000);
        put(kept[i], 0, 3000);
    }
    return kept[COUNT - 1];
}

static void *thread(void *unused) {
    char *p = last();
    tell("last", (unsigned long)p);
    tell("usable", malloc_usable_size(p));
    tell("top", (unsigned long)p + malloc_usable_size(p) - 8);
    put(p + malloc_usable_size(p), 1, 8);
    abort();
    return unused;
}

int main(int argc, char **argv) {
    static char text[1 << 16];
    if (argc != 3)
        return 2;
    mode = argv[2];
    file = fopen(argv[1], "w");
    setvbuf(file, text, _IONBF, 0);
    if (is("thread-top")) {
        pthread_t other;
        pthread_create(&other, NULL, thread, NULL);
        pthread_join(other, NULL);
    }
    char *p = last();
    size_t usable = malloc_usable_size(p);
    struct mallinfo2 said = mallinfo2();
    tell("arena", said.arena);
    tell("uordblks", said.uordblks);
    tell("keepcost", said.keepcost);
    tell("last", (unsigned long)p);
    tell("usable", usable);
    tell("top", (unsigned long)p + usable - 8);
    tell("abort", (unsigned long)abort);
    if (is("top-ones"))
        put(p + usable, 1, 8);
    if (is("top-text"))
        put(p + usable, 'A', 8);
    if (is("top-far"))
        *(volatile size_t *)(p + usable) += 16 << 20;
    fclose(file);
    abort();
}
