/* Poisson sampling over allocated bytes. The distance to the next sample is exponential. So a block of size s is
 * sampled with probability 1 - exp(-s / mean), whatever the order of the allocations. */
#ifndef DMODS_SAMPLING_H
#define DMODS_SAMPLING_H

#include "../threads.h"

/* Return whether this block is a sample. The thread's counter has just run out. The first block of a thread only draws
 * the first distance. */
bool sample_due(struct thread *thread, size_t size);

#endif
