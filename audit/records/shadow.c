#include "shadow.h"
#include "../memory.h"

struct top *shadow_top;

bool shadow_start(void) {
    shadow_top = own_memory(sizeof(struct top), DMODS_AUDIT_RANGE_RECORDS);
    root.shadow = (struct dmods_audit_shadow){
        .top = (uintptr_t)shadow_top,
        .top_shift = MIDDLE_SHIFT,
        .top_count = TOP_COUNT,
        .middle_shift = LEAF_SHIFT,
        .middle_count = MIDDLE_COUNT,
        .granule_shift = GRANULE_SHIFT,
        .leaf_records = LEAF_RECORDS,
        .record_size = sizeof(struct record),
        .offset_shift = 3,
        .live = {0, 0, 1, 0},
        .offset = {0, RECORD_OFFSET_AT, 2, 0},
        .stack = {0, RECORD_STACK_AT, RECORD_STACK_BITS, 0},
        .thread = {0, RECORD_THREAD_AT, RECORD_THREAD_BITS, 0},
        .size = {0, RECORD_SIZE_AT, RECORD_SIZE_BITS, 0},
        .time = {1, 0, 64, 0},
    };
    root.freed = (struct dmods_audit_bits){0, 1, 1, 0};
    return shadow_top != NULL;
}

void shadow_count_lost(void) { __atomic_fetch_add(&root.figures.lost_records, 1, __ATOMIC_RELAXED); }

/* Two threads may make the same table at once. The slower one uses the table of the faster one. */
void *shadow_leaf(uintptr_t address, size_t size) {
    if (address >> MIDDLE_SHIFT >= TOP_COUNT)
        return NULL;
    _Atomic(struct middle *) *middle_at = &shadow_top->middles[address >> MIDDLE_SHIFT];
    struct middle *middle = atomic_load(middle_at);
    if (middle == NULL) {
        struct middle *made = size != 0 ? own_memory(sizeof(struct middle), DMODS_AUDIT_RANGE_RECORDS) : NULL;
        if (made == NULL)
            return NULL;
        if (atomic_compare_exchange_strong(middle_at, &middle, made))
            middle = made;
    }
    _Atomic(struct leaf *) *leaf_at = &middle->leaves[(address >> LEAF_SHIFT) % MIDDLE_COUNT];
    struct leaf *leaf = atomic_load(leaf_at);
    if (leaf == NULL && size != 0) {
        struct leaf *made = own_memory(size, DMODS_AUDIT_RANGE_RECORDS);
        if (made != NULL && atomic_compare_exchange_strong(leaf_at, &leaf, made))
            leaf = made;
    }
    return leaf;
}

struct record *shadow_make(uintptr_t address) {
    struct leaf *leaf = shadow_leaf(address, sizeof(struct leaf));
    return leaf == NULL ? NULL : &leaf->records[(address >> GRANULE_SHIFT) % LEAF_RECORDS];
}

void shadow_forget_freed(uintptr_t address, size_t size) {
    const uintptr_t granule = 1u << GRANULE_SHIFT, end = address + size;
    uintptr_t at = (address & ~(granule - 1)) + granule;
    while (at < end) {
        struct record *record = shadow_find(at);
        if (record == NULL) {
            at = ((at >> LEAF_SHIFT) + 1) << LEAF_SHIFT;
            continue;
        }
        uint64_t word = atomic_load_explicit(&record->word, memory_order_relaxed);
        /* The last granule may hold the start of the next block, which another thread may be allocating. */
        if (word & RECORD_FREED && at + (word >> RECORD_OFFSET_AT & 3) * 8 < end)
            atomic_compare_exchange_strong(&record->word, &word, 0);
        at += granule;
    }
}
