#include "threads.h"
#include "clock.h"
#include "memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK_SHIFT 10
#define CHUNKS (1u << (THREAD_NUMBER_BITS - CHUNK_SHIFT))

__thread struct thread self_thread;
static uint64_t chunks[CHUNKS];

extern void *__libc_stack_end; /* ld.so: where the stack of the main thread began */

void threads_start(void) {
    root.threads = (struct dmods_audit_table){.chunks = (uintptr_t)chunks,
                                              .chunk_shift = CHUNK_SHIFT,
                                              .chunk_count = CHUNKS,
                                              .entry_size = sizeof(struct dmods_audit_thread),
                                              .count = 1};
    root.tls_offset = (intptr_t)&self_thread - (intptr_t)__builtin_thread_pointer();
    root.tls_size = sizeof self_thread;
}

/* Find the thread's stack. The upper end is exact. The lower end is how far the stack may grow. pthread_getattr_np
 * gives exact ends, but it allocates and takes locks. */
static void find_stack(struct thread *thread, bool main_thread) {
    thread->stack_high = main_thread ? (uintptr_t)__libc_stack_end + 64 : (uintptr_t)pthread_self();
    struct rlimit limit;
    uintptr_t size = 64u << 20;
    /* This limit is also glibc's default size of a thread's stack (nptl/nptl-init.c, __pthread_initialize_minimal). */
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < size)
        size = limit.rlim_cur;
    thread->stack_low = thread->stack_high > size ? thread->stack_high - size : 0;
}

void thread_register(struct thread *thread) {
    int saved = errno;
    uint32_t tid = (uint32_t)syscall(SYS_gettid), pid = (uint32_t)getpid();
    if (thread->stack_high == 0) {
        find_stack(thread, tid == pid);
        thread->random = clock_ticks() ^ (uint64_t)tid << 32 ^ (uintptr_t)thread;
    }
    thread->head = thread->tail = 0;
    thread->walking = thread->mapping = false;
    thread->index = 0;
    uint64_t index = __atomic_fetch_add(&root.threads.count, 1, __ATOMIC_RELAXED);
    struct dmods_audit_thread *entry = NULL;
    if (index < 1ull << THREAD_NUMBER_BITS)
        entry = table_entry(&root.threads, index, DMODS_AUDIT_RANGE_OTHER);
    else
        __atomic_store_n(&root.threads.count, 1ull << THREAD_NUMBER_BITS, __ATOMIC_RELAXED);
    if (entry != NULL) {
        entry->pid = pid;
        entry->pthread = (uint64_t)pthread_self();
        entry->time = clock_ticks() - settings.start_ticks;
        prctl(PR_GET_NAME, entry->name);
        __atomic_store_n(&entry->tid, tid, __ATOMIC_RELEASE);
        thread->index = (uint32_t)index;
    }
    thread->registered = true;
    errno = saved;
}

void thread_forked(void) { self_thread.registered = false; }
