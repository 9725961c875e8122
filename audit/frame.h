/* A frame of a stack that was walked. */
#ifndef DMODS_FRAME_H
#define DMODS_FRAME_H

#include "audit.h"

#define MAX_FRAMES 64
#define SLACK_FRAMES 16 /* walked beyond the limit, so that a few returns do not need a new walk */
#define GROWTH_FRAMES 16
#define CACHED_FRAMES (MAX_FRAMES + SLACK_FRAMES + GROWTH_FRAMES)

/* The registers with which the frame continues after the call, and what was read to find its caller. */
struct frame {
    uintptr_t pc, sp, bp;
    uintptr_t bp_at; /* where the frame saved its caller's rbp; 0: it did not save it */
    uint64_t hash;   /* of the frames from the outermost cached one to this one */
    uint16_t flags;
    uint16_t next_words; /* the first frame from this one outwards that depends on more than its return address */
    int32_t cfa_at;      /* FRAME_INDIRECT: the CFA is stored at rbp + cfa_at */
};
#define NODE_FLAGS_AT DMODS_AUDIT_NODE_TRUNCATED_BIT
enum {
    FRAME_TRUNCATED = 1, /* this flag and the next one become the bits of a node from NODE_FLAGS_AT on */
    FRAME_EXACT = 2,
    FRAME_NEEDS_BP = 4, /* the frames outside depend on this frame's rbp */
    FRAME_CHECK_BP = 8, /* the frames outside depend on the word at bp_at */
    FRAME_USES_BP = 16, /* the CFA of this frame is computed from rbp */
    FRAME_INDIRECT = 32,
};
#define FRAME_WORDS (FRAME_CHECK_BP | FRAME_INDIRECT) /* the caller depends on more words than its return address */
#define NO_WORDS UINT16_MAX

_Static_assert(FRAME_EXACT == 1 << (DMODS_AUDIT_NODE_EXACT_BIT - NODE_FLAGS_AT),
               "the flags are in the order of the bits");

/* Return the pc with its flags, as a node stores it. */
HOT uint64_t frame_key(const struct frame *f) {
    return f->pc | (uint64_t)(f->flags & (FRAME_TRUNCATED | FRAME_EXACT)) << NODE_FLAGS_AT;
}

#endif
