/* What the parts of the auditor share. The hot path is inline here and in shadow.h; everything else is behind a call.
 */
#ifndef DMODS_AUDIT_H
#define DMODS_AUDIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define EXPORT __attribute__((visibility("default")))
#define HOT static inline __attribute__((always_inline))
#define COLD __attribute__((cold, noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define MAX_FRAMES 64
#define SLACK_FRAMES 16 /* walked beyond the window, so that a few returns need no new walk */
#define GROWTH_FRAMES 16
#define CACHED_FRAMES (MAX_FRAMES + SLACK_FRAMES + GROWTH_FRAMES)

enum mode {
    MODE_BOOT, /* nothing is known yet: blocks come from the bootstrap arena */
    MODE_OFF,
    MODE_SAMPLED,
    MODE_FULL,
};

/* What the hot path asks for, in one cache line. */
struct settings {
    _Atomic int mode;
    uint32_t frames;
    bool tsc, log, guards;
    uint32_t redzone;
    size_t least; /* blocks are at least so large: two of them never share a granule */
    _Atomic uint64_t next_moment;
    uint64_t start_ticks;
} __attribute__((aligned(64)));
extern struct settings settings;

extern struct dmods_audit_root dmods_audit_root EXPORT;
#define root dmods_audit_root

/* A frame of a walked stack: the registers with which it goes on after the call, and what was read to find its caller.
 */
struct frame {
    uintptr_t pc, sp, bp;
    uintptr_t bp_at; /* where it saved its caller's rbp; 0: it did not */
    uint64_t hash;   /* of the kept frames from the outermost to this one */
    uint32_t flags;
    int32_t cfa_at; /* FRAME_INDIRECT: where its CFA is kept, from rbp */
};
enum {
    FRAME_TRUNCATED = 1, /* these two as in the bits 48 and 49 of a node */
    FRAME_EXACT = 2,
    FRAME_NEEDS_BP = 4, /* the rest of the stack depends on this frame's rbp */
    FRAME_CHECK_BP = 8, /* ... on the word at bp_at */
    FRAME_USES_BP = 16, /* its CFA is found from rbp */
    FRAME_INDIRECT = 32,
};

/* Of each thread, in its static TLS: it comes and goes with the thread. The rbp of a frame
 * may be anything, a pointer to a block too: root.tls_offset tells readers where this is. */
struct thread {
    uint32_t index; /* in root.threads; 0: too many threads */
    bool known, walking, complete;
    int32_t head,
        tail; /* frames[head..tail): the last stack, innermost first; complete: up to where the thread began */
    uint32_t generation;
    uint32_t stack; /* the node of its innermost root.options.frames */
    uintptr_t stack_low, stack_high;
    bool sampling;
    int64_t until_sample;
    uint64_t random;
    struct frame frames[CACHED_FRAMES];
};
extern __thread struct thread self_thread __attribute__((tls_model("initial-exec")));

/* The allocator below. */
struct allocator {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*usable)(void *);
};
extern struct allocator below;

/* memory.c */
void *own_memory(size_t size, enum dmods_audit_range_kind kind);
void own_range(uintptr_t start, uintptr_t end, enum dmods_audit_range_kind kind);
void *table_entry(struct dmods_audit_table *table, uint64_t index, enum dmods_audit_range_kind kind);
bool readable(uintptr_t address);
void give_up(const char *why);

struct lock {
    _Atomic int taken;
};
void lock(struct lock *lock);
void unlock(struct lock *lock);
extern struct lock memory_lock, stacks_lock;

/* start.c */
bool start(void);

/* bootstrap.c */
void *bootstrap_malloc(size_t size, size_t alignment);
extern struct bootstrap_arena {
    _Atomic size_t used;
    char bytes[256 << 10] __attribute__((aligned(64)));
} bootstrap_arena;
HOT bool bootstrap_owns(const void *p) {
    return unlikely((uintptr_t)p - (uintptr_t)bootstrap_arena.bytes < sizeof bootstrap_arena.bytes);
}
size_t bootstrap_size(const void *p);

/* options.c */
bool options_read(const char *text, struct dmods_audit_options *options);

/* clock.c */
void clock_start(void);
uint64_t clock_slow_ticks(void);
COLD void clock_moment(uint64_t now);

/* threads.c */
COLD void thread_meet(struct thread *thread);
void thread_forked(void);

/* stacks.c */
bool stacks_start(void);
uint32_t stacks_intern(const struct frame *innermost, int count, uint64_t hash);
extern uint64_t stacks_weights[CACHED_FRAMES], stacks_inverses[CACHED_FRAMES]; /* by the distance from the outermost */

/* walk_ARCH.c: the node of the stack whose innermost frame called the function with that frame pointer */
uint32_t walk(struct thread *thread, uintptr_t frame_pointer);
void walk_code_unloaded(void); /* what was remembered of it is forgotten */

/* fde.c */
void fde_start(void);

/* log.c */
bool log_start(void);
COLD void log_event(const struct dmods_audit_transaction *event, const void *contents);

/* guards.c */
void guards_fresh(void *p, size_t size, size_t old_size);
void guards_redzone(void *p, size_t size);
void guards_check(const void *p, size_t size, uintptr_t frame_pointer);
void guards_freed(void *p, size_t size);
COLD void guards_bad_free(const void *p, uintptr_t frame_pointer);

/* sample.c */
bool sample_due(struct thread *thread, size_t size);

HOT uint64_t clock_ticks(void) {
#if defined __x86_64__
    if (likely(settings.tsc))
        return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    if (likely(settings.tsc)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return clock_slow_ticks();
}

/* The time as records keep it. */
HOT uint64_t clock_now(void) {
    uint64_t now = clock_ticks();
    if (unlikely(now > atomic_load_explicit(&settings.next_moment, memory_order_relaxed)))
        clock_moment(now);
    return now - settings.start_ticks;
}

HOT struct thread *thread_self(void) {
    struct thread *thread = &self_thread;
    if (unlikely(!thread->known))
        thread_meet(thread);
    return thread;
}

#endif
