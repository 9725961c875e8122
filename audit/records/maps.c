#include "maps.h"
#include "../memory.h"

#define ENTRIES (1u << 17) /* the kernel allows 65530 mappings (vm.max_map_count) */

bool maps_start(void) {
    if (!(root.options.flags & DMODS_AUDIT_MAPS))
        return true;
    void *entries = own_memory(ENTRIES * sizeof(struct dmods_audit_mapping), DMODS_AUDIT_RANGE_OTHER);
    root.maps =
        (struct dmods_audit_array){.entries = (uintptr_t)entries, .entry_size = sizeof(struct dmods_audit_mapping)};
    return entries != NULL;
}

static struct dmods_audit_mapping *entry_at(uint64_t index) {
    return (struct dmods_audit_mapping *)root.maps.entries + index;
}

void maps_count_lost(void) { __atomic_fetch_add(&root.lost_maps, 1, __ATOMIC_RELAXED); }

/* A reader may look at any moment: `start` is cleared first and written last. */
static void change(struct dmods_audit_mapping *at, struct dmods_audit_mapping to) {
    __atomic_store_n(&at->start, 0, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    uintptr_t start = to.start;
    to.start = 0;
    *at = to;
    __atomic_store_n(&at->start, start, __ATOMIC_RELEASE);
}

static void add(const struct dmods_audit_mapping *entry) {
    struct dmods_audit_mapping *unused = NULL;
    for (uint64_t i = 0; i < root.maps.count && unused == NULL; i++)
        unused = entry_at(i)->start == 0 ? entry_at(i) : NULL;
    if (unused == NULL && root.maps.count < ENTRIES)
        unused = entry_at(root.maps.count);
    if (unused == NULL) {
        maps_count_lost();
        return;
    }
    change(unused, *entry);
    if (unused == entry_at(root.maps.count))
        __atomic_store_n(&root.maps.count, root.maps.count + 1, __ATOMIC_RELEASE);
}

/* The caller holds the lock. */
static struct dmods_audit_mapping cut(uintptr_t start, uintptr_t end, uint64_t before) {
    struct dmods_audit_mapping first = {0};
    for (uint64_t i = 0, count = root.maps.count; i < count; i++) {
        struct dmods_audit_mapping *at = entry_at(i), now = *at;
        if (now.start == 0 || now.start >= end || now.end <= start || now.time >= before)
            continue;
        if (now.start <= start)
            first = now;
        struct dmods_audit_mapping rest = now;
        rest.start = end;
        if (now.start < start) {
            now.end = start;
            change(at, now);
            if (rest.start < rest.end)
                add(&rest);
        } else if (rest.start < rest.end) {
            change(at, rest);
        } else {
            __atomic_store_n(&at->start, 0, __ATOMIC_RELEASE);
        }
    }
    return first;
}

struct dmods_audit_mapping maps_cut(uintptr_t start, uintptr_t end, uint64_t before) {
    lock(&maps_lock);
    struct dmods_audit_mapping first = cut(start, end, before);
    unlock(&maps_lock);
    return first;
}

void maps_put(const struct dmods_audit_mapping *entry, bool grows) {
    lock(&maps_lock);
    cut(entry->start, entry->end, UINT64_MAX);
    bool grown = false;
    for (uint64_t i = 0; grows && !grown && i < root.maps.count; i++) {
        struct dmods_audit_mapping *at = entry_at(i);
        grown = at->start != 0 && at->end == entry->start && at->stack == entry->stack && at->kind == entry->kind &&
                at->thread == entry->thread;
        if (grown)
            at->end = entry->end;
    }
    if (!grown)
        add(entry);
    unlock(&maps_lock);
}

struct dmods_audit_mapping maps_at(uintptr_t start, uint32_t kind) {
    struct dmods_audit_mapping found = {0};
    lock(&maps_lock);
    for (uint64_t i = 0; i < root.maps.count && found.start == 0; i++)
        if (entry_at(i)->start == start && entry_at(i)->kind == kind)
            found = *entry_at(i);
    unlock(&maps_lock);
    return found;
}
