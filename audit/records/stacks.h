/*
 * Every distinct stack once, as a path in a tree, because most stacks of a program share their outer frames.
 *
 * One probe of an index finds a whole stack by the hash of its frames. The hash is the sum of pc * weight^(distance
 * from the outermost frame). So each outer part of a stack has a hash too, and the nodes of the tree are in the same
 * index. The hash of some frames within a longer stack is the difference of two hashes, divided by a power of the
 * weight. An entry stores 36 bits of the 64-bit hash and lies within a few places of where the upper bits point. Among
 * a million stacks, two share an entry by mistake with a probability of about one in ten thousand.
 *
 * Readers take no lock. Writers append nodes and fill entries under one lock. What was written never changes.
 */
#ifndef DMODS_STACKS_H
#define DMODS_STACKS_H

#include "../frame.h"

/* Make the tables. False: there is no memory for them. */
bool stacks_start(void);

/* Return the node of a stack, which is added if it is new. 0: there is no frame, or the table is full. `hash` is that
 * of all frames with their keys (frame_key). `cut`: the program's stack goes on, and the last frame is marked as
 * truncated; its flag is not part of `hash`. */
uint32_t stacks_intern(const struct frame *innermost, int count, uint64_t hash, bool cut);

/* The powers of the weight and of its inverse, by the distance from the outermost frame. */
extern uint64_t stacks_weights[CACHED_FRAMES], stacks_inverses[CACHED_FRAMES];

#endif
