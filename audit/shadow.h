/*
 * The records of live blocks: 16 bytes for each 32 bytes of heap, found by the block's address alone. No lock and no
 * hash: a block belongs to one thread while it is allocated or freed, and no two blocks share a granule
 * (settings.least).
 *
 * A table at the side, because a header would shift the layout and could be overwritten by what is being looked for.
 */
#ifndef DMODS_SHADOW_H
#define DMODS_SHADOW_H

#include "audit.h"

/* word 0: live 1, freed 1, offset 2, thread 18, stack 28, size 14; word 1: time */
#define RECORD_LIVE 1ull
#define RECORD_FREED 2ull
#define RECORD_OFFSET_AT 2
#define RECORD_THREAD_AT 4
#define RECORD_THREAD_BITS 18
#define RECORD_STACK_AT 22
#define RECORD_STACK_BITS 28
#define RECORD_SIZE_AT 50
#define RECORD_SIZE_BITS 14
#define RECORD_SIZE_ELSEWHERE ((1ull << RECORD_SIZE_BITS) - 1)

#define GRANULE_SHIFT 5
#define LEAF_SHIFT 22
#define MIDDLE_SHIFT 34
#define TOP_COUNT (1u << (48 - MIDDLE_SHIFT))
#define MIDDLE_COUNT (1u << (MIDDLE_SHIFT - LEAF_SHIFT))
#define LEAF_RECORDS (1u << (LEAF_SHIFT - GRANULE_SHIFT))

struct record {
    _Atomic uint64_t word;
    _Atomic uint64_t time;
};

struct leaf {
    struct record records[LEAF_RECORDS];
};
struct middle {
    _Atomic(struct leaf *) leaves[MIDDLE_COUNT];
};
struct top {
    _Atomic(struct middle *) middles[TOP_COUNT];
};
extern struct top *shadow_top;

/* What was known of a block. `record` is NULL for one that has no record. */
struct known {
    struct record *record;
    uint64_t word, time;
    size_t size;
};

bool shadow_start(void);
COLD struct record *shadow_make(uintptr_t address);
void *shadow_leaf(uintptr_t address, size_t size);
void shadow_lost(void);

/* NULL: nothing was ever recorded near that address. */
HOT struct record *shadow_find(uintptr_t address) {
    uintptr_t high = address >> MIDDLE_SHIFT;
    if (unlikely(high >= TOP_COUNT))
        return NULL;
    struct middle *middle = atomic_load_explicit(&shadow_top->middles[high], memory_order_acquire);
    if (unlikely(middle == NULL))
        return NULL;
    struct leaf *leaf =
        atomic_load_explicit(&middle->leaves[(address >> LEAF_SHIFT) % MIDDLE_COUNT], memory_order_acquire);
    if (unlikely(leaf == NULL))
        return NULL;
    return &leaf->records[(address >> GRANULE_SHIFT) % LEAF_RECORDS];
}

/* The record will be written after the stack was walked. */
HOT void shadow_prefetch(uintptr_t address) {
    struct record *record = shadow_find(address);
    if (likely(record != NULL))
        __builtin_prefetch(record, 1);
}

HOT uint64_t record_offset(uintptr_t address) { return (address >> 3 & 3) << RECORD_OFFSET_AT; }

/* The requested size of a recorded block. The next record may lie in the next leaf. */
HOT size_t record_size(uint64_t word, uintptr_t address) {
    size_t size = word >> RECORD_SIZE_AT;
    if (unlikely(size == RECORD_SIZE_ELSEWHERE)) {
        struct record *next = shadow_find(address + (1u << GRANULE_SHIFT));
        size = next == NULL ? size : atomic_load_explicit(&next->time, memory_order_relaxed);
    }
    return size;
}

HOT void shadow_put(uintptr_t address, size_t size, uint64_t time, uint32_t thread, uint32_t stack) {
    struct record *record = shadow_find(address);
    if (unlikely(record == NULL) && (record = shadow_make(address)) == NULL) {
        shadow_lost();
        return;
    }
    uint64_t kept = size;
    if (unlikely(size >= RECORD_SIZE_ELSEWHERE)) {
        struct record *next = shadow_make(address + (1u << GRANULE_SHIFT));
        if (next == NULL) {
            shadow_lost();
            return;
        }
        atomic_store_explicit(&next->time, size, memory_order_relaxed);
        atomic_store_explicit(&next->word, 0, memory_order_relaxed);
        kept = RECORD_SIZE_ELSEWHERE;
    }
    uint64_t word = RECORD_LIVE | record_offset(address) | (uint64_t)thread << RECORD_THREAD_AT |
                    (uint64_t)stack << RECORD_STACK_AT | kept << RECORD_SIZE_AT;
    atomic_store_explicit(&record->time, time, memory_order_relaxed);
    atomic_store_explicit(&record->word, word, memory_order_release);
}

/* What is known of a block that is about to be freed, without its record from here on. */
HOT struct known shadow_take(uintptr_t address) {
    struct known known = {.record = shadow_find(address)};
    if (unlikely(known.record == NULL))
        return known;
    known.word = atomic_load_explicit(&known.record->word, memory_order_relaxed);
    if (unlikely((known.word & (RECORD_LIVE | 3ull << RECORD_OFFSET_AT)) != (RECORD_LIVE | record_offset(address)))) {
        known.record = NULL;
        return known;
    }
    known.time = atomic_load_explicit(&known.record->time, memory_order_relaxed);
    known.size = record_size(known.word, address);
    atomic_store_explicit(&known.record->word, 0, memory_order_relaxed);
    return known;
}

HOT uint32_t record_stack(uint64_t word) {
    return (uint32_t)(word >> RECORD_STACK_AT & ((1u << RECORD_STACK_BITS) - 1));
}

HOT uint32_t record_thread(uint64_t word) {
    return (uint32_t)(word >> RECORD_THREAD_AT & ((1u << RECORD_THREAD_BITS) - 1));
}

/* With guards: the record goes on to say who freed the block. */
static inline void shadow_freed(const struct known *known, uint64_t time, uint32_t thread, uint32_t stack) {
    uint64_t kept = known->word & (3ull << RECORD_OFFSET_AT | RECORD_SIZE_ELSEWHERE << RECORD_SIZE_AT);
    atomic_store_explicit(&known->record->time, time, memory_order_relaxed);
    atomic_store_explicit(&known->record->word,
                          RECORD_FREED | kept | (uint64_t)thread << RECORD_THREAD_AT |
                              (uint64_t)stack << RECORD_STACK_AT,
                          memory_order_release);
}

/* Undo shadow_take: the block was not freed after all. */
HOT void shadow_put_back(const struct known *known) {
    if (known->record != NULL)
        atomic_store_explicit(&known->record->word, known->word, memory_order_release);
}

/* samples.c: the same for samples, in the same tables with other leaves. */
struct known_sample {
    size_t size;
    uint64_t time;
    uint32_t thread, stack;
};
extern _Atomic uint8_t samples_near[1u << 16];
void samples_shape(struct dmods_audit_shadow *shadow);
void samples_put(uintptr_t address, size_t size, uint64_t time, uint32_t thread, uint32_t stack);
bool samples_take(uintptr_t address, struct known_sample *known);

HOT bool samples_may_know(uintptr_t address) {
    return unlikely(atomic_load_explicit(&samples_near[address >> 12 & 0xffff], memory_order_relaxed) != 0);
}

#endif
