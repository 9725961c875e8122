/* Blocks from before the real allocator was found: dlsym, which finds it, allocates. They are never freed. */
#ifndef DMODS_BOOTSTRAP_H
#define DMODS_BOOTSTRAP_H

#include "../audit.h"

extern struct bootstrap_arena {
    _Atomic size_t used;
    char bytes[256 << 10] __attribute__((aligned(64)));
} bootstrap_arena;

/* Allocate zeroed memory. NULL: the arena is full. */
void *bootstrap_malloc(size_t size, size_t alignment);
size_t bootstrap_size(const void *p);

HOT bool bootstrap_owns(const void *p) {
    return unlikely((uintptr_t)p - (uintptr_t)bootstrap_arena.bytes < sizeof bootstrap_arena.bytes);
}

#endif
