/* What the hooks of C (malloc.c) and of C++ (cxx.c) share: the records of blocks that come and go. */
#ifndef DMODS_HOOKS_H
#define DMODS_HOOKS_H

#include "../clock.h"
#include "../records/samples.h"
#include "../records/shadow.h"
#include "../threads.h"
#include "../unwind/walk.h"
#include "bootstrap.h"
#include "guards.h"
#include "real.h"
#include "start.h"

#include <link.h>

#define FRAME_POINTER ((uintptr_t)__builtin_frame_address(0))

/* Return the size to request from the real allocator. */
HOT size_t padded(size_t size) {
    size_t smallest = size < settings.smallest ? settings.smallest : size;
    return unlikely(smallest > (size_t)PTRDIFF_MAX - settings.redzone) ? size : smallest + settings.redzone;
}

COLD void hook_log_allocated(const void *p, size_t size, uint64_t time, uint32_t thread, uint32_t stack);
COLD void hook_log_freed(const void *p, const struct taken_record *taken, uintptr_t frame_pointer);
COLD void hook_guard_freed(void *p, const struct taken_record *taken, uintptr_t frame_pointer);
COLD void hook_sampled(void *p, size_t size, struct thread *thread, uintptr_t frame_pointer);
COLD void hook_sample_freed(uintptr_t address);

/* Record a new block. */
HOT void *record_block(void *p, size_t size, uintptr_t frame_pointer) {
    if (unlikely(p == NULL))
        return p;
    shadow_prefetch((uintptr_t)p);
    struct thread *thread = thread_self();
    uint64_t now = clock_now();
    uint32_t stack = walk(thread, frame_pointer);
    shadow_put((uintptr_t)p, size, now, thread->index, stack);
    if (unlikely(settings.log))
        hook_log_allocated(p, size, now, thread->index, stack);
    return p;
}

/* Record a new block, and write its guards first where they are on. Its first `kept` bytes have contents already. */
HOT void *record_full(void *p, size_t size, size_t kept, uintptr_t frame_pointer) {
    if (unlikely(settings.guards) && p != NULL) {
        if (kept < size)
            guards_fill_fresh(p, size, kept);
        guards_write_redzone(p, size);
        shadow_forget_freed((uintptr_t)p, size + settings.redzone);
    }
    return record_block(p, size, frame_pointer);
}

/* Record a new block if it is one of the samples. */
HOT void *record_sampled(void *p, size_t size, uintptr_t frame_pointer) {
    struct thread *thread = &self_thread;
    thread->until_sample -= (int64_t)size;
    if (unlikely(thread->until_sample <= 0))
        hook_sampled(p, size, thread, frame_pointer);
    return p;
}

/* Record a new block as the mode wants it. */
HOT void *record_allocation(void *p, size_t size, size_t kept, uintptr_t frame_pointer) {
    return mode() == MODE_FULL      ? record_full(p, size, kept, frame_pointer)
           : mode() == MODE_SAMPLED ? record_sampled(p, size, frame_pointer)
                                    : p;
}

/* Return whether code is being unloaded. The loader unmaps the code first and frees its own data about it later
 * (elf/dl-close.c), so a free is the place to notice it. */
HOT bool unloading(void) { return unlikely(_r_debug.r_state == RT_DELETE); }

/* Take the record of a block that is about to be freed. */
HOT void record_free(void *p, uintptr_t frame_pointer) {
    if (unloading())
        walk_code_unloaded();
    if (likely(mode() == MODE_FULL)) {
        struct taken_record taken = shadow_take((uintptr_t)p);
        if (unlikely(settings.log) && taken.record != NULL)
            hook_log_freed(p, &taken, frame_pointer);
        if (unlikely(settings.guards))
            hook_guard_freed(p, &taken, frame_pointer);
        else if (unlikely(taken.record == NULL))
            __atomic_fetch_add(&root.figures.unknown_frees, 1, __ATOMIC_RELAXED);
    } else if (samples_may_have((uintptr_t)p)) {
        hook_sample_freed((uintptr_t)p);
    }
}

#endif
