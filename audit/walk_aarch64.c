/* Stacks by frame pointers, which AArch64's calling standard keeps (AAPCS64, 6.4.6: x29 points at the caller's x29 and
 * the return address) and compilers leave in by default. Code without them ends the walk, or is left out. */
#if defined __aarch64__
#include "audit.h"

static _Atomic uint32_t generation;

void walk_code_unloaded(void) { atomic_fetch_add(&generation, 1); }

/* A return address without the signature that pointer authentication put in its upper bits. */
static uintptr_t plain_address(uintptr_t address) {
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri; nothing where there is no such thing */
    return x30;
}

/* Whether a frame record can be read there: without asking, from here to the end of the thread's own stack. */
static bool usable(const struct thread *t, uintptr_t at, uintptr_t from, bool own) {
    if (at % 16 != 0 || at < from)
        return false;
    return own ? at < t->stack_high - 16 : readable(at) && readable(at + 8);
}

__attribute__((noinline)) uint32_t walk(struct thread *t, uintptr_t frame_pointer) {
    struct frame frames[MAX_FRAMES];
    int most = (int)settings.frames, count = 0;
    bool own = frame_pointer > t->stack_low && frame_pointer < t->stack_high;
    uintptr_t at = frame_pointer, from = frame_pointer;
    for (; count < most && usable(t, at, from, own); count++) {
        const uintptr_t *record = (const uintptr_t *)at;
        uintptr_t pc = plain_address(record[1]);
        if (pc == 0)
            break;
        frames[count] = (struct frame){.pc = pc};
        from = at + 16;
        at = record[0];
    }
    /* The outermost frame's record is 0: anything else is where frame pointers ended. */
    if (count > 0 && count < most && at != 0)
        frames[count - 1].flags |= FRAME_TRUNCATED;
    uint64_t hash = 0;
    for (int i = count - 1, outer = 0; i >= 0; i--, outer++)
        hash += (frames[i].pc | (uint64_t)(frames[i].flags & FRAME_TRUNCATED) << 48) * stacks_weights[outer];
    return stacks_intern(frames, count, hash);
}
#endif
