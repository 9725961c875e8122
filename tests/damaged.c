/* Damage the heap in one place and die: damaged FILE MODE. The file tells what glibc said before (mallinfo2), and
 * addresses. The modes:
 *   "top-ones", "top-text"   bytes beyond the end of the last block, over the size of the top chunk
 *   "top-far"                a size of the top chunk that is plausible, and 16 MiB too large
 *   "thread-top"             "top-ones" in the arena of a thread
 *   "under-text", "under-numbers"  16 bytes before the start of a block: the words at -16 and -8
 *   "under-8"                the word at -8
 *   "under-free"             the word at -16, behind a free chunk
 *   "over-text", "over-24"   text through the end of a block into the next header; 24 bytes from its end on
 *   "sound"                  nothing
 * The fact "culprit" is the block at fault, "victim" the block whose header was hit. */
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

/* Write before the start of the middle one of three neighbours, or beyond the end of the first. */
static void bounds(void) {
    char *before = calloc(1, 200), *block = calloc(1, 200), *behind = calloc(1, 200);
    char *other = calloc(1, 2000), *wall = calloc(1, 2000), *guard = calloc(1, 200);
    kept[0] = before, kept[1] = block, kept[2] = behind, kept[3] = wall, kept[4] = guard;
    memset(before, 0x11, 40);
    if (is("under-text"))
        put(block - 16, 'U', 16);
    else if (is("under-numbers"))
        ((volatile size_t *)block)[-2] = 0x123456789, ((volatile size_t *)block)[-1] = 0x7ffe12345678;
    else if (is("under-8"))
        ((volatile size_t *)block)[-1] = 0x123456789abcdef0;
    else if (is("under-free")) {
        free(other);
        kept[5] = malloc(4000); /* puts the chunk into its bin */
        ((volatile size_t *)wall)[-2] = 0x123456789;
        block = wall;
    } else if (is("over-text"))
        put(before, 'O', malloc_usable_size(before) + 8), block = before;
    else if (is("over-24"))
        put(before + malloc_usable_size(before), 'O', 24), block = before;
    else
        return;
    tell("culprit", (unsigned long)block);
    tell("victim", block == before ? (unsigned long)kept[1] : (unsigned long)block);
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
    if (strncmp(mode, "under", 5) == 0 || strncmp(mode, "over", 4) == 0)
        bounds();
    fclose(file);
    abort();
}
