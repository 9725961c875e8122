#include "hooks.h"
#include "../records/log.h"
#include "sampling.h"

/* The parts of the hooks that run seldom, so that the inline parts stay short. */

void hook_sampled(void *p, size_t size, struct thread *thread, uintptr_t frame_pointer) {
    if (!sample_due(thread_self(), size) || p == NULL)
        return;
    uint64_t now = clock_now();
    samples_put((uintptr_t)p, size, now, thread->index, walk(thread, frame_pointer));
}

void hook_sample_freed(uintptr_t address) {
    struct taken_sample taken;
    samples_take(address, &taken);
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

void hook_log_freed(const void *p, const struct taken_record *taken, uintptr_t frame_pointer) {
    struct thread *thread = thread_self();
    struct dmods_audit_transaction event = {.address = (uintptr_t)p,
                                            .size = taken->size,
                                            .time = clock_now(),
                                            .stack = walk(thread, frame_pointer),
                                            .thread = thread->index,
                                            .event = DMODS_AUDIT_FREED,
                                            .alloc_time = taken->time,
                                            .alloc_stack = record_stack(taken->word),
                                            .alloc_thread = record_thread(taken->word)};
    log_event(&event, p);
}

void hook_guard_freed(void *p, const struct taken_record *taken, uintptr_t frame_pointer) {
    if (taken->record == NULL) {
        guards_stop_bad_free(p, frame_pointer);
        return;
    }
    struct thread *thread = thread_self();
    guards_check(p, taken->size, frame_pointer);
    guards_fill_freed(p, taken->size);
    shadow_put_freed(taken, clock_now(), thread->index, walk(thread, frame_pointer));
}
