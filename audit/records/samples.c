#include "samples.h"
#include "../memory.h"
#include "shadow.h"

#define PLACES 16 /* the records that a sample may use: its own and 15 before it */

/* word 0: live 1, claimed 1, offset 16, thread 18, stack 28 */
#define SAMPLE_CLAIMED 2ull
#define SAMPLE_OFFSET_AT 2
#define SAMPLE_THREAD_AT 18
#define SAMPLE_STACK_AT 36

struct sample {
    _Atomic uint64_t word, time, size;
    uint64_t reserved;
};

static unsigned granule_shift;

_Atomic uint8_t samples_near[1u << 16];

/* A count of 255 stays: it may stand for more. */
static void count(uintptr_t address, int by) {
    _Atomic uint8_t *near = &samples_near[address >> 12 & 0xffff];
    uint8_t now = atomic_load(near);
    while (now != 255 && !atomic_compare_exchange_weak(near, &now, (uint8_t)(now + by)))
        ;
}

void samples_start(void) {
    struct dmods_audit_shadow *shadow = &root.shadow;
    for (granule_shift = 5; granule_shift < 12 && 16ull << granule_shift <= root.options.sample;)
        granule_shift++;
    shadow->granule_shift = granule_shift;
    shadow->leaf_records = 1u << (LEAF_SHIFT - granule_shift);
    shadow->record_size = sizeof(struct sample);
    shadow->offset = (struct dmods_audit_bits){0, SAMPLE_OFFSET_AT, 16, 0};
    shadow->thread = (struct dmods_audit_bits){0, SAMPLE_THREAD_AT, RECORD_THREAD_BITS, 0};
    shadow->stack = (struct dmods_audit_bits){0, SAMPLE_STACK_AT, RECORD_STACK_BITS, 0};
    shadow->size = (struct dmods_audit_bits){2, 0, 64, 0};
}

static uint64_t own_index(uintptr_t address) { return (address >> granule_shift) % root.shadow.leaf_records; }

/* Return the offset of a block in word 0 of the record that is `back` places before its own. */
static uint64_t offset_from(uintptr_t address, uint64_t back) {
    return ((address % (1u << granule_shift) + (back << granule_shift)) >> 3) << SAMPLE_OFFSET_AT;
}

void samples_put(uintptr_t address, size_t size, uint64_t time, uint32_t thread, uint32_t stack) {
    struct sample *leaf = shadow_leaf(address, root.shadow.leaf_records * sizeof(struct sample));
    uint64_t own = own_index(address);
    for (uint64_t back = 0; leaf != NULL && back < PLACES && back <= own; back++) {
        struct sample *sample = &leaf[own - back];
        uint64_t unused = 0;
        if (!atomic_compare_exchange_strong(&sample->word, &unused, SAMPLE_CLAIMED))
            continue;
        atomic_store_explicit(&sample->time, time, memory_order_relaxed);
        atomic_store_explicit(&sample->size, size, memory_order_relaxed);
        count(address, 1);
        atomic_store_explicit(&sample->word,
                              RECORD_LIVE | offset_from(address, back) | (uint64_t)thread << SAMPLE_THREAD_AT |
                                  (uint64_t)stack << SAMPLE_STACK_AT,
                              memory_order_release);
        return;
    }
    shadow_count_lost();
}

bool samples_take(uintptr_t address, struct taken_sample *taken) {
    struct sample *leaf = shadow_leaf(address, 0);
    uint64_t own = own_index(address), mask = RECORD_LIVE | 0xffffull << SAMPLE_OFFSET_AT;
    for (uint64_t back = 0; leaf != NULL && back < PLACES && back <= own; back++) {
        struct sample *sample = &leaf[own - back];
        uint64_t word = atomic_load_explicit(&sample->word, memory_order_relaxed);
        if ((word & mask) != (RECORD_LIVE | offset_from(address, back)))
            continue;
        *taken =
            (struct taken_sample){.size = atomic_load(&sample->size),
                                  .time = atomic_load(&sample->time),
                                  .thread = (uint32_t)(word >> SAMPLE_THREAD_AT & ((1u << RECORD_THREAD_BITS) - 1)),
                                  .stack = (uint32_t)(word >> SAMPLE_STACK_AT & ((1u << RECORD_STACK_BITS) - 1))};
        atomic_store_explicit(&sample->word, 0, memory_order_release);
        count(address, -1);
        return true;
    }
    return false;
}
