/* The hooks of C's allocation functions. */
#include "hooks.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Allocate before the auditor has started, and where nothing is recorded. */
static COLD void *malloc_unrecorded(size_t size, size_t alignment) {
    if (mode() == MODE_BOOT && !start()) {
        void *p = bootstrap_malloc(size, alignment);
        if (p == NULL)
            errno = ENOMEM;
        return p;
    }
    return alignment == 0 ? real.malloc(padded(size)) : real.memalign(alignment, padded(size));
}

/* malloc() and free() tail-call the slow path, so that no extra frame appears in the recorded stack. The fast path
 * needs no frame at all. */
static __attribute__((noinline)) void *malloc_slow_path(size_t size) {
    if (likely(mode() == MODE_FULL))
        return record_full(real.malloc(padded(size)), size, 0, FRAME_POINTER);
    if (likely(mode() == MODE_SAMPLED)) {
        void *p = real.malloc(size);
        hook_sampled(p, size, &self_thread, FRAME_POINTER);
        return p;
    }
    return record_allocation(malloc_unrecorded(size, 0), size, 0, FRAME_POINTER);
}

EXPORT void *malloc(size_t size) {
    if (mode() == MODE_SAMPLED && likely((self_thread.until_sample -= (int64_t)size) > 0))
        return real.malloc(size);
    return malloc_slow_path(size);
}

static __attribute__((noinline)) void free_slow_path(void *p) {
    if (unlikely(p == NULL || bootstrap_owns(p)))
        return;
    if (likely(mode() > MODE_OFF))
        record_free(p, FRAME_POINTER);
    real.free(p);
}

EXPORT void free(void *p) {
    if (mode() == MODE_SAMPLED && !samples_may_have((uintptr_t)p) && !unloading() && !bootstrap_owns(p))
        real.free(p);
    else
        free_slow_path(p);
}

EXPORT void free_sized(void *p, size_t size) {
    (void)size;
    if (p == NULL || bootstrap_owns(p))
        return;
    if (mode() > MODE_OFF)
        record_free(p, FRAME_POINTER);
    real.free(p);
}

EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    if (p == NULL || bootstrap_owns(p))
        return;
    if (mode() > MODE_OFF)
        record_free(p, FRAME_POINTER);
    real.free(p);
}

EXPORT void *calloc(size_t count, size_t each) {
    size_t size;
    if (unlikely(__builtin_mul_overflow(count, each, &size) || size > PTRDIFF_MAX)) {
        errno = ENOMEM;
        return NULL;
    }
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_unrecorded(size, 0); /* the arena is zeroed, and no part of it is used twice */
    return record_allocation(real.calloc(1, padded(size)), size, size, FRAME_POINTER);
}

/* Reallocate a block of the bootstrap arena. */
static COLD void *move_out(const void *p, size_t size, uintptr_t frame_pointer) {
    void *to = record_allocation(malloc_unrecorded(size, 0), size, 0, frame_pointer);
    size_t old = bootstrap_size(p);
    if (to != NULL)
        memcpy(to, p, old < size ? old : size);
    return to;
}

/* The record is taken before the block is freed, because another thread may get the same address right after. If
 * realloc fails, the record is put back. */
static void *reallocate_sampled(void *p, size_t size, uintptr_t frame_pointer) {
    struct taken_sample taken;
    bool sample = samples_may_have((uintptr_t)p) && samples_take((uintptr_t)p, &taken);
    void *to = real.realloc(p, size);
    if (to == NULL && size != 0 && sample)
        samples_put((uintptr_t)p, taken.size, taken.time, taken.thread, taken.stack);
    return to == NULL ? NULL : record_sampled(to, size, frame_pointer);
}

static void *reallocate_recorded(void *p, size_t size, uintptr_t frame_pointer) {
    struct taken_record taken = shadow_take((uintptr_t)p);
    if (unlikely(settings.guards)) {
        if (taken.record == NULL)
            guards_stop_bad_free(p, frame_pointer);
        else
            guards_check(p, taken.size, frame_pointer);
    }
    if (unlikely(settings.log) && taken.record != NULL)
        hook_log_freed(p, &taken, frame_pointer);
    void *to = real.realloc(p, size == 0 ? 0 : padded(size));
    if (likely(to != NULL))
        return record_full(to, size, taken.record == NULL ? size : taken.size, frame_pointer);
    if (size != 0) {
        shadow_put_back(&taken);
        if (settings.log && taken.record != NULL)
            hook_log_allocated(p, taken.size, taken.time, record_thread(taken.word), record_stack(taken.word));
    }
    return NULL;
}

/* Keep the caller's frame until the call returns. A tail call would drop it while the walk still reads it: on AArch64
 * the frame record lies at the lowest address of the frame. (On x86-64 the next function's record takes the same
 * place.) */
HOT void *returned(void *p) {
#if defined __aarch64__
    __asm__("" : "+r"(p));
#endif
    return p;
}

HOT void *reallocate(void *p, size_t size, uintptr_t frame_pointer) {
    if (unlikely(p == NULL))
        return record_allocation(mode() == MODE_BOOT ? malloc_unrecorded(size, 0) : real.malloc(padded(size)), size, 0,
                                 frame_pointer);
    if (unlikely(bootstrap_owns(p)))
        return move_out(p, size, frame_pointer);
    if (unlikely(mode() <= MODE_OFF))
        return real.realloc(p, size);
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
        return record_allocation(malloc_unrecorded(size, alignment), size, 0, FRAME_POINTER);
    return record_allocation(real.memalign(alignment, padded(size)), size, 0, FRAME_POINTER);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    if (unlikely(mode() == MODE_BOOT))
        return record_allocation(malloc_unrecorded(size, alignment), size, 0, FRAME_POINTER);
    return record_allocation(real.aligned_alloc(alignment, padded(size)), size, 0, FRAME_POINTER);
}

EXPORT int posix_memalign(void **to, size_t alignment, size_t size) {
    if (unlikely(mode() == MODE_BOOT) && !start()) {
        void *p = malloc_unrecorded(size, alignment);
        if (p != NULL)
            *to = p;
        return p == NULL ? ENOMEM : 0;
    }
    int error = real.posix_memalign(to, alignment, padded(size));
    if (error == 0)
        record_allocation(*to, size, 0, FRAME_POINTER);
    return error;
}

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

EXPORT void *valloc(size_t size) {
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_unrecorded(size, page());
    return record_allocation(real.memalign(page(), padded(size)), size, 0, FRAME_POINTER);
}

EXPORT void *pvalloc(size_t size) {
    size_t rounded;
    if (__builtin_add_overflow(size, page() - 1, &rounded)) {
        errno = ENOMEM;
        return NULL;
    }
    rounded &= ~(page() - 1);
    if (unlikely(mode() == MODE_BOOT) && !start())
        return malloc_unrecorded(rounded, page());
    return record_allocation(real.memalign(page(), padded(rounded)), rounded, 0, FRAME_POINTER);
}

/* With guards this is the requested size: a program may write to the usable end, and must not reach the redzone. */
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
    return real.malloc_usable_size(p);
}
