// Says how many blocks mimalloc itself counts in two of its heaps, and dies.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    void *blocks;
    size_t reserved, committed, used, block_size;
} area; // the beginning of mi_heap_area_t, in 2.x and 3.x

typedef bool visitor(const void *, const area *, void *, size_t, void *);
typedef bool visit_blocks(const void *, bool, visitor *, void *);

static size_t count, bytes;

static bool visit(const void *heap, const area *where, void *block, size_t size, void *argument) {
    (void)heap, (void)where, (void)argument;
    if (block) {
        count++;
        bytes += size;
    }
    return true;
}

static void *symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

int main(void) {
    void *(*heap_new)(void) = symbol("mi_heap_new");
    void *(*heap_malloc)(void *, size_t) = symbol("mi_heap_malloc");
    void *(*heap_main)(void) = symbol("mi_heap_get_default");
    if (!heap_main)
        heap_main = symbol("mi_heap_main");
    visit_blocks *blocks = symbol("mi_heap_visit_blocks");
    if (!heap_new || !heap_malloc || !heap_main || !blocks)
        return 2;
    static void *held[20000];
    static void *volatile other;
    other = heap_new();
    for (int i = 0; i < 20000; i++) {
        size_t size = (size_t)i * 2654435761u % (i % 100 ? 600 : 300000);
        held[i] = i % 3 ? malloc(size) : heap_malloc(other, size);
        memset(held[i], 0x5a, size);
    }
    for (int i = 0; i < 20000; i += 2 + i % 3) {
        free(held[i]);
        held[i] = NULL;
    }
    blocks(heap_main(), true, visit, NULL);
    blocks(other, true, visit, NULL);
    char said[100];
    int length = snprintf(said, sizeof said, "%zu %zu\n", count, bytes);
    if (write(1, said, (size_t)length) != length)
        return 2;
    abort();
}
