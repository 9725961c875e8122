/*
 * The records of live blocks: 16 bytes for each 32 bytes of heap, found by the address of the block. No lock and no
 * hash is needed: only one thread at a time allocates or frees a block, and two blocks never share a granule
 * (settings.smallest).
 *
 * The records are not headers of the blocks, because a header would change the layout of the heap, and an overrun would
 * overwrite it.
 */
#ifndef DMODS_SHADOW_H
#define DMODS_SHADOW_H

#include "../audit.h"

/* word 0: live 1, freed 1, offset 2, thread 18, stack 28, size 14; word 1: time */
#define RECORD_LIVE 1ull
#define RECORD_FREED 2ull
#define RECORD_OFFSET_AT 2
#define RECORD_THREAD_AT 4
#define RECORD_THREAD_BITS THREAD_NUMBER_BITS
#define RECORD_STACK_AT 22
#define RECORD_STACK_BITS STACK_NUMBER_BITS
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

/* A record that was taken out of the table. `record` is its place there; NULL: the block had no record. */
struct taken_record {
    struct record *record;
    uint64_t word, time;
    size_t size;
};

/* Make the tables. False: there is no memory for them. */
bool shadow_start(void);

/* Return the place of a record, and make its leaf where it has no leaf yet. NULL: no memory. */
COLD struct record *shadow_make(uintptr_t address);

/* Return the leaf of an address. Where no leaf exists, make one of `size` bytes, unless `size` is 0. */
void *shadow_leaf(uintptr_t address, size_t size);

/* Count a block that gets no record. */
void shadow_count_lost(void);

/* Return the place of a record. NULL: no block near this address was ever recorded. */
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

/* Prefetch the record, which is written after the stack was walked. */
HOT void shadow_prefetch(uintptr_t address) {
    struct record *record = shadow_find(address);
    if (likely(record != NULL))
        __builtin_prefetch(record, 1);
}

HOT uint64_t record_offset(uintptr_t address) { return (address >> 3 & 3) << RECORD_OFFSET_AT; }

/* Return the requested size of a recorded block. The record that follows may lie in the next leaf. */
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
        shadow_count_lost();
        return;
    }
    uint64_t kept = size;
    if (unlikely(size >= RECORD_SIZE_ELSEWHERE)) {
        struct record *next = shadow_make(address + (1u << GRANULE_SHIFT));
        if (next == NULL) {
            shadow_count_lost();
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

/* Take the record of a block out of the table: the block is about to be freed. */
HOT struct taken_record shadow_take(uintptr_t address) {
    struct taken_record taken = {.record = shadow_find(address)};
    if (unlikely(taken.record == NULL))
        return taken;
    taken.word = atomic_load_explicit(&taken.record->word, memory_order_relaxed);
    if (unlikely((taken.word & (RECORD_LIVE | 3ull << RECORD_OFFSET_AT)) != (RECORD_LIVE | record_offset(address)))) {
        taken.record = NULL;
        return taken;
    }
    taken.time = atomic_load_explicit(&taken.record->time, memory_order_relaxed);
    taken.size = record_size(taken.word, address);
    atomic_store_explicit(&taken.record->word, 0, memory_order_relaxed);
    return taken;
}

HOT uint32_t record_stack(uint64_t word) {
    return (uint32_t)(word >> RECORD_STACK_AT & ((1u << RECORD_STACK_BITS) - 1));
}

HOT uint32_t record_thread(uint64_t word) {
    return (uint32_t)(word >> RECORD_THREAD_AT & ((1u << RECORD_THREAD_BITS) - 1));
}

/* Leave a record that says who freed the block (with guards). */
static inline void shadow_put_freed(const struct taken_record *taken, uint64_t time, uint32_t thread, uint32_t stack) {
    uint64_t kept = taken->word & (3ull << RECORD_OFFSET_AT | RECORD_SIZE_ELSEWHERE << RECORD_SIZE_AT);
    atomic_store_explicit(&taken->record->time, time, memory_order_relaxed);
    atomic_store_explicit(&taken->record->word,
                          RECORD_FREED | kept | (uint64_t)thread << RECORD_THREAD_AT |
                              (uint64_t)stack << RECORD_STACK_AT,
                          memory_order_release);
}

/* Remove the records of freed blocks whose memory a new block takes (with guards). So a record of a freed block says
 * that no other block has used its memory since. */
COLD void shadow_forget_freed(uintptr_t address, size_t size);

/* Undo shadow_take: the block was not freed. */
HOT void shadow_put_back(const struct taken_record *taken) {
    if (taken->record != NULL)
        atomic_store_explicit(&taken->record->word, taken->word, memory_order_release);
}

#endif
