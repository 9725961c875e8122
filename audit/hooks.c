/* The allocation family of C. */
#include "hooks.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void hook_sampled(void *p, size_t size, struct thread *thread, uintptr_t frame_pointer) {
    if (!sample_due(thread_self(), size) || p == NULL)
        return;
    uint64_t now = clock_now();
    samples_put((uintptr_t)p, size, now, thread->index, walk(thread, frame_pointer));
}

void hook_sample_freed(uintptr_t address) {
    struct known_sample known;
    samples_take(address, &known);
}

void hook_log_allocated(const void *p, size_t size, uint64_t time, uint32_t thread, uint32_t stack) {
    struct dmods_audit_transaction event = {.address = (uintptr_t)p,
                                            .size = size,
                                            .time = time,
                                            .stack = stack,
                                            .thread = thread,
                                            .event = DMODS_AUDIT_ALLOCATED};
    log_event(&event, NULL);
}

void hook_log_freed(const void *p, const struct known *known, uintptr_t frame_pointer) {
    struct thread *thread = thread_self();
    struct dmods_audit_transaction event = {.address = (uintptr_t)p,
                                            .size = known->size,
                                            .time = clock_now(),
                                            .stack = walk(thread, frame_pointer),
                                            .thread = thread->index,
                                            .event = DMODS_AUDIT_FREED,
                                            .alloc_time = known->time,
                                            .alloc_stack = record_stack(known->word),
                                            .alloc_thread = record_thread(known->word)};
    log_event(&event, p);
}

void hook_guard_freed(void *p, const struct known *known, uintptr_t frame_pointer) {
    if (known->record == NULL) {
        guards_bad_free(p, frame_pointer);
        return;
    }
    struct thread *thread = thread_self();
    guards_check(p, known->size, frame_pointer);
    guards_freed(p, known->size);
    shadow_freed(known, clock_now(), thread->index, walk(thread, frame_pointer));
}

/* Before the start, and where nothing is audited. */
static COLD void *malloc_otherwise(size_t size, size_t alignment) {
    if (mode() == MODE_BOOT && !start()) {
        void *p = bootstrap_malloc(size, alignment);
        if (p == NULL)
            errno = ENOMEM;
        return p;
    }
    return alignment == 0 ? below.malloc(padded(size)) : below.memalign(alignment, padded(size));
}

/* The exported functions of every day leave what is seldom to a function that they jump to: that one's frame is where
 * their own would be, and the others need none. */
static __attribute__((noinline)) void *malloc_noted(size_t size) {
    if (likely(mode() == MODE_FULL))
        return record_guarded(below.malloc(padded(size)), size, 0, FRAME_POINTER);
    if (likely(mode() == MODE_SAMPLED)) {
        void *p = below.malloc(size);
        hook_sampled(p, size, &self_thread, FRAME_POINTER);
        return p;
    }
    return given(malloc_otherwise(size, 0), size, 0, FRAME_POINTER);
}

EXPORT void *malloc(size_t size) {
    if (mode() == MODE_SAMPLED && likely((self_thread.until_sample -= (int64_t)size) > 0))
        return below.malloc(size);
    return malloc_noted(size);
}

static __attribute__((noinline)) void free_noted(void *p) {
    if (unlikely(p == NULL || bootstrap_owns(p)))
        return;
    if (likely(mode() > MODE_OFF))
        forget_block(p, FRAME_POINTER);
    below.free(p);
}

EXPORT void free(void *p) {
    if (mode() == MODE_SAMPLED && !samples_may_know((uintptr_t)p) && !unloading() && !bootstrap_owns(p))
        below.free(p);
    else
        free_noted(p);
}

EXPORT void free_sized(void *p, size_t size) {
    (void)size;
    if (p == NULL || bootstrap_owns(p))
        return;
    if (mode() > MODE_OFF)
        forget_block(p, FRAME_POINTER);
    below.free(p);
}

EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    if (p == NULL || bootstrap_owns(p))
        return;
    if (mode() > MODE_OFF)
        forget_block(p, FRAME_POINTER);
    below.free(p);
}

EXPORT void *calloc(size_t count, size_t each) {
    size_t size;
    if (unlikely(__builtin_mul_overflow(count, each, &size) || size > PTRDIFF_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_otherwise(size, 0); /* the arena is zeroed, and no part of it is used twice */
    return given(below.calloc(1, padded(size)), size, size, FRAME_POINTER);
}

static COLD void *move_out(const void *p, size_t size, uintptr_t frame_pointer) {
    void *to = given(malloc_otherwise(size, 0), size, 0, frame_pointer);
    size_t old = bootstrap_size(p);
    if (to != NULL)
        memcpy(to, p, old < size ? old : size);
    return to;
}

/* The record goes before the block does: from then on its address may be another thread's. If the block stays, so does
 * the record. */
static void *reallocate_sampled(void *p, size_t size, uintptr_t frame_pointer) {
    struct known_sample known;
    bool sample = samples_may_know((uintptr_t)p) && samples_take((uintptr_t)p, &known);
    void *to = below.realloc(p, size);
    if (to == NULL && size != 0 && sample)
        samples_put((uintptr_t)p, known.size, known.time, known.thread, known.stack);
    return to == NULL ? NULL : maybe_sample(to, size, frame_pointer);
}

static void *reallocate_recorded(void *p, size_t size, uintptr_t frame_pointer) {
    struct known known = shadow_take((uintptr_t)p);
    if (unlikely(settings.guards)) {
        if (known.record == NULL)
            guards_bad_free(p, frame_pointer);
        else
            guards_check(p, known.size, frame_pointer);
    }
    if (unlikely(settings.log) && known.record != NULL)
        hook_log_freed(p, &known, frame_pointer);
    void *to = below.realloc(p, size == 0 ? 0 : padded(size));
    if (likely(to != NULL))
        return record_guarded(to, size, known.record == NULL ? size : known.size, frame_pointer);
    if (size != 0) {
        shadow_put_back(&known);
        if (settings.log && known.record != NULL)
            hook_log_allocated(p, known.size, known.time, record_thread(known.word), record_stack(known.word));
    }
    return NULL;
}

/* Whoever was handed a function's frame may not be jumped to at its end: on AArch64 a frame's record lies at its lowest
 * address, and is gone with it. (On x86-64 it lies where the next function's will.) */
HOT void *returned(void *p) {
#if defined __aarch64__
    __asm__("" : "+r"(p));
#endif
    return p;
}

HOT void *reallocate(void *p, size_t size, uintptr_t frame_pointer) {
    if (unlikely(p == NULL))
        return given(mode() == MODE_BOOT ? malloc_otherwise(size, 0) : below.malloc(padded(size)), size, 0,
                     frame_pointer);
    if (unlikely(bootstrap_owns(p)))
        return move_out(p, size, frame_pointer);
    if (unlikely(mode() <= MODE_OFF))
        return below.realloc(p, size);
    if (unloading())
        walk_code_unloaded();
    return mode() == MODE_FULL ? reallocate_recorded(p, size, frame_pointer)
                               : reallocate_sampled(p, size, frame_pointer);
}

EXPORT void *realloc(void *p, size_t size) { return returned(reallocate(p, size, FRAME_POINTER)); }

EXPORT void *reallocarray(void *p, size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    return returned(reallocate(p, size, FRAME_POINTER));
}

EXPORT void *memalign(size_t alignment, size_t size) {
    if (unlikely(mode() == MODE_BOOT))
        return given(malloc_otherwise(size, alignment), size, 0, FRAME_POINTER);
    return given(below.memalign(alignment, padded(size)), size, 0, FRAME_POINTER);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    if (unlikely(mode() == MODE_BOOT))
        return given(malloc_otherwise(size, alignment), size, 0, FRAME_POINTER);
    return given(below.aligned_alloc(alignment, padded(size)), size, 0, FRAME_POINTER);
}

EXPORT int posix_memalign(void **to, size_t alignment, size_t size) {
    if (unlikely(mode() == MODE_BOOT) && !start()) {
        void *p = malloc_otherwise(size, alignment);
        if (p != NULL)
            *to = p;
        return p == NULL ? ENOMEM : 0;
    }
    int error = below.posix_memalign(to, alignment, padded(size));
    if (error == 0)
        given(*to, size, 0, FRAME_POINTER);
    return error;
}

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

EXPORT void *valloc(size_t size) {
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_otherwise(size, page());
    return given(below.memalign(page(), padded(size)), size, 0, FRAME_POINTER);
}

EXPORT void *pvalloc(size_t size) {
    size_t rounded;
    if (__builtin_add_overflow(size, page() - 1, &rounded)) {
        errno = ENOMEM;
        return NULL;
    }
    rounded &= ~(page() - 1);
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_otherwise(rounded, page());
    return given(below.memalign(page(), padded(rounded)), rounded, 0, FRAME_POINTER);
}

/* With guards a program that fills its blocks to their usable end must not run into the redzone. */
EXPORT size_t malloc_usable_size(void *p) {
    if (p == NULL)
        return 0;
    if (bootstrap_owns(p))
        return bootstrap_size(p);
    if (unlikely(settings.guards)) {
        struct record *record = shadow_find((uintptr_t)p);
        uint64_t word = record != NULL ? atomic_load(&record->word) : 0;
        if (word & RECORD_LIVE)
            return record_size(word, (uintptr_t)p);
    }
    return below.usable(p);
}
