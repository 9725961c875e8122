/* Threads as the auditor meets them: at their first block. */
#include "audit.h"
#include "shadow.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct thread self_thread;

extern void *__libc_stack_end; /* ld.so: where the main thread's stack began */

/* The stack of this thread, about: its upper end is exact, its lower end is where it may grow to. pthread_getattr_np
 * would know better, but allocates and takes locks. */
static void bounds(struct thread *thread, bool main_thread) {
    thread->stack_high = main_thread ? (uintptr_t)__libc_stack_end + 64 : (uintptr_t)pthread_self();
    struct rlimit limit;
    uintptr_t most = 64u << 20;
    /* glibc's default size of a thread's stack is this limit too (nptl/nptl-init.c, __pthread_initialize_minimal) */
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < most)
        most = limit.rlim_cur;
    thread->stack_low = thread->stack_high > most ? thread->stack_high - most : 0;
}

void thread_meet(struct thread *thread) {
    int saved = errno;
    uint32_t tid = (uint32_t)syscall(SYS_gettid), pid = (uint32_t)getpid();
    if (thread->stack_high == 0) {
        bounds(thread, tid == pid);
        thread->random = clock_ticks() ^ (uint64_t)tid << 32 ^ (uintptr_t)thread;
    }
    thread->head = thread->tail = 0;
    thread->walking = false;
    thread->index = 0;
    uint64_t index = __atomic_fetch_add(&root.threads.count, 1, __ATOMIC_RELAXED);
    struct dmods_audit_thread *entry = NULL;
    if (index < 1ull << RECORD_THREAD_BITS)
        entry = table_entry(&root.threads, index, DMODS_AUDIT_RANGE_OTHER);
    else
        __atomic_store_n(&root.threads.count, 1ull << RECORD_THREAD_BITS, __ATOMIC_RELAXED);
    if (entry != NULL) {
        entry->pid = pid;
        entry->pthread = (uint64_t)pthread_self();
        entry->time = clock_ticks() - settings.start_ticks;
        prctl(PR_GET_NAME, entry->name);
        __atomic_store_n(&entry->tid, tid, __ATOMIC_RELEASE);
        thread->index = (uint32_t)index;
    }
    thread->known = true;
    errno = saved;
}

/* In the child: the one thread that is left, under a new number. */
void thread_forked(void) { self_thread.known = false; }
