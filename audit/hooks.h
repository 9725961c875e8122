/* What all hooks have in common: C's (hooks.c) and C++'s (cxx.c). */
#ifndef DMODS_HOOKS_H
#define DMODS_HOOKS_H

#include "shadow.h"

#include <link.h>

#define FRAME_POINTER ((uintptr_t)__builtin_frame_address(0))

HOT int mode(void) { return atomic_load_explicit(&settings.mode, memory_order_relaxed); }

/* What the allocator below is asked for. */
HOT size_t padded(size_t size) {
    size_t least = size < settings.least ? settings.least : size;
    return unlikely(least > (size_t)PTRDIFF_MAX - settings.redzone) ? size : least + settings.redzone;
}

COLD void hook_log_allocated(const void *p, size_t size, uint64_t time, uint32_t thread, uint32_t stack);
COLD void hook_log_freed(const void *p, const struct known *known, uintptr_t frame_pointer);
COLD void hook_guard_freed(void *p, const struct known *known, uintptr_t frame_pointer);
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

/* The same with guards, of a block whose first `kept` bytes have contents. */
HOT void *record_guarded(void *p, size_t size, size_t kept, uintptr_t frame_pointer) {
    if (unlikely(settings.guards) && p != NULL) {
        if (kept < size)
            guards_fresh(p, size, kept);
        guards_redzone(p, size);
    }
    return record_block(p, size, frame_pointer);
}

/* Sampled: whether this block is one of the samples is known before it is there, from its size. */
HOT void *maybe_sample(void *p, size_t size, uintptr_t frame_pointer) {
    struct thread *thread = &self_thread;
    thread->until_sample -= (int64_t)size;
    if (unlikely(thread->until_sample <= 0))
        hook_sampled(p, size, thread, frame_pointer);
    return p;
}

/* A block that the allocator gave, to be recorded as the mode wants it. */
HOT void *given(void *p, size_t size, size_t kept, uintptr_t frame_pointer) {
    return mode() == MODE_FULL      ? record_guarded(p, size, kept, frame_pointer)
           : mode() == MODE_SAMPLED ? maybe_sample(p, size, frame_pointer)
                                    : p;
}

/* Whether code is being unloaded: the loader frees what it knew of it after it is unmapped (elf/dl-close.c). */
HOT bool unloading(void) { return unlikely(_r_debug.r_state == RT_DELETE); }

/* A block is about to be given back. */
HOT void forget_block(void *p, uintptr_t frame_pointer) {
    if (unloading())
        walk_code_unloaded();
    if (likely(mode() == MODE_FULL)) {
        struct known known = shadow_take((uintptr_t)p);
        if (unlikely(settings.log) && known.record != NULL)
            hook_log_freed(p, &known, frame_pointer);
        if (unlikely(settings.guards))
            hook_guard_freed(p, &known, frame_pointer);
        else if (unlikely(known.record == NULL))
            __atomic_fetch_add(&root.figures.unknown_frees, 1, __ATOMIC_RELAXED);
    } else if (samples_may_know((uintptr_t)p)) {
        hook_sample_freed((uintptr_t)p);
    }
}

#endif
