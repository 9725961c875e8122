/*
 * The records of samples. Samples lie far apart (one in `mean` bytes), so one record for each 32 bytes of heap would
 * touch a page for every few samples. There is one record of 32 bytes for each 4096 bytes of heap instead. Where two
 * samples are closer than that, one of them uses a record before its own. Every thread may write every record, so a
 * thread claims a record before it writes it.
 */
#ifndef DMODS_SAMPLES_H
#define DMODS_SAMPLES_H

#include "../audit.h"

struct taken_sample {
    size_t size;
    uint64_t time;
    uint32_t thread, stack;
};

/* The number of live samples in each 4 KB of address space, by 16 bits of the address: most frees look no further. */
extern _Atomic uint8_t samples_near[1u << 16];

/* Change the layout of the records to that of samples. */
void samples_start(void);
void samples_put(uintptr_t address, size_t size, uint64_t time, uint32_t thread, uint32_t stack);

/* Take the record of a block out of the table. False: the block is not a sample. */
bool samples_take(uintptr_t address, struct taken_sample *taken);

/* Return whether a block can be a sample. */
HOT bool samples_may_have(uintptr_t address) {
    return unlikely(atomic_load_explicit(&samples_near[address >> 12 & 0xffff], memory_order_relaxed) != 0);
}

#endif
