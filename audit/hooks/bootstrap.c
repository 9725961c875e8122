#include "bootstrap.h"
#include "../memory.h"

#include <string.h>

struct bootstrap_arena bootstrap_arena;
#define arena bootstrap_arena

static bool listed;

void *bootstrap_malloc(size_t size, size_t alignment) {
    if (!listed) {
        listed = true;
        own_range((uintptr_t)arena.bytes, (uintptr_t)arena.bytes + sizeof arena.bytes, DMODS_AUDIT_RANGE_BOOTSTRAP);
    }
    alignment = alignment < 16 ? 16 : alignment;
    if (size > sizeof arena.bytes || alignment > 4096)
        return NULL;
    size_t used = atomic_load(&arena.used), at;
    do {
        /* The 16 bytes before a block hold its size. */
        at = (((uintptr_t)arena.bytes + used + 16 + alignment - 1) & ~(alignment - 1)) - (uintptr_t)arena.bytes;
        if (at + size > sizeof arena.bytes)
            return NULL;
    } while (!atomic_compare_exchange_weak(&arena.used, &used, at + size));
    memcpy(arena.bytes + at - 16, &size, sizeof size);
    return arena.bytes + at;
}

size_t bootstrap_size(const void *p) {
    size_t size;
    memcpy(&size, (const char *)p - 16, sizeof size);
    return size;
}
