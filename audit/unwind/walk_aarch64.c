/* Stacks by frame pointers. The AArch64 calling standard asks for them, and compilers keep them by default
 * (AAPCS64, 6.4.6: x29 points at the caller's x29 and the return address). Code without frame pointers ends the walk,
 * or is missing from it. */
#if defined __aarch64__
#include "../memory.h"
#include "../records/stacks.h"
#include "walk.h"

void walk_start(void) {}
void walk_code_unloaded(void) {}

/* Remove the signature that pointer authentication put into the upper bits of a return address. */
static uintptr_t strip_signature(uintptr_t address) {
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri; older processors do nothing */
    return x30;
}

/* Return whether a frame record can be read. No check is needed from here to the end of the thread's own stack. */
static bool usable(const struct thread *t, uintptr_t at, uintptr_t from, bool own) {
    if (at % 16 != 0 || at < from)
        return false;
    return own ? at < t->stack_high - 16 : readable(at) && readable(at + 8);
}

__attribute__((noinline)) uint32_t walk(struct thread *t, uintptr_t frame_pointer) {
    struct frame frames[MAX_FRAMES];
    int limit = (int)settings.frames, count = 0;
    bool own = frame_pointer > t->stack_low && frame_pointer < t->stack_high, cut = false;
    uintptr_t at = frame_pointer, from = frame_pointer;
    while (usable(t, at, from, own)) {
        const uintptr_t *record = (const uintptr_t *)at;
        uintptr_t pc = strip_signature(record[1]);
        if (pc == 0)
            break;
        cut = count == limit;
        if (cut)
            break;
        frames[count++] = (struct frame){.pc = pc};
        from = at + 16;
        at = record[0];
    }
    /* The record of the outermost frame is 0. Anything else is a place where frame pointers ended. */
    if (count > 0 && !cut && at != 0)
        frames[count - 1].flags |= FRAME_TRUNCATED;
    uint64_t hash = 0;
    for (int i = count - 1, outer = 0; i >= 0; i--, outer++)
        hash += frame_key(&frames[i]) * stacks_weights[outer];
    return stacks_intern(frames, count, hash, cut);
}
#endif
