// Two allocators that take memory from sbrk in turns: libc's malloc, and that of a library.
// shared_break LIBRARY ALLOCATE FREE SEED MOST: blocks of up to MOST bytes. It tells of each block, and what
// malloc_stats(3) says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 2000
#define STEPS 5000
#define HIDDEN ((uintptr_t)0x5a5a5a5a5a5a5a5a)

typedef void *(*allocate)(size_t);
typedef void (*release)(void *);
typedef size_t (*measure)(void *);

static struct {
    uintptr_t hidden;
    size_t size;
    int other, lost;
} told[BLOCKS];
static void *volatile kept[BLOCKS];
static uint64_t seed;

static unsigned next(void) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return seed >> 33;
}

__attribute__((noinline)) static void work(const allocate *make, const release *drop, const measure *usable,
                                           unsigned most) {
    for (int step = 0; step < STEPS; step++) {
        int i = next() % BLOCKS;
        if (told[i].lost)
            continue;
        if (told[i].hidden) {
            drop[told[i].other]((void *)(told[i].hidden ^ HIDDEN));
            kept[i] = NULL;
            told[i].hidden = 0;
            continue;
        }
        told[i].other = next() % 2;
        told[i].size = 16 + next() % (next() % 8 ? 600 : most);
        told[i].lost = next() % 20 == 0;
        void *block = make[told[i].other](told[i].size);
        memset(block, 0x11, usable[told[i].other](block)); // no old pointer stays in it
        told[i].hidden = (uintptr_t)block ^ HIDDEN;
        kept[i] = told[i].lost ? NULL : block;
    }
}

__attribute__((noinline)) static void clear_stack(void) {
    volatile char below[16384];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 0;
}

int main(int argc, char **argv) {
    void *libc = dlopen("libc.so.6", RTLD_NOW), *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (argc != 6 || !library)
        return 2;
    allocate make[] = {(allocate)dlsym(libc, "malloc"), (allocate)dlsym(library, argv[2])};
    release drop[] = {(release)dlsym(libc, "free"), (release)dlsym(library, argv[3])};
    measure usable[] = {(measure)dlsym(libc, "malloc_usable_size"), (measure)dlsym(library, "malloc_usable_size")};
    seed = strtoul(argv[4], NULL, 10);
    work(make, drop, usable, strtoul(argv[5], NULL, 10));
    for (int i = 0; i < BLOCKS; i++)
        if (told[i].hidden)
            fprintf(stderr, "%s %s %lu %zu\n", told[i].other ? "other" : "glibc", told[i].lost ? "lost" : "live",
                    (unsigned long)told[i].hidden, told[i].size);
    ((void (*)(void))dlsym(libc, "malloc_stats"))();
    memset(told, 0, sizeof told);
    clear_stack();
    abort();
}
