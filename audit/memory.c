#include "memory.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RANGES 4096

static struct dmods_audit_range ranges[RANGES];
struct lock memory_lock, stacks_lock, maps_lock;

static void add_figure(uint64_t *figure, uint64_t by) { __atomic_fetch_add(figure, by, __ATOMIC_RELAXED); }

/* A thread holds a lock for microseconds. It can lose its processor meanwhile. After a clone() without fork handlers
 * the thread that holds the lock may not exist in this process. */
void lock(struct lock *lock) {
    for (unsigned tries = 0;; tries++) {
        int free = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->taken, &free, 1, memory_order_acquire, memory_order_relaxed))
            return;
        if (tries < 100)
            continue;
        sched_yield();
        if (tries % 1000 == 0 && (uint32_t)getpid() != root.pid) {
            root.pid = (uint32_t)getpid();
            return; /* the thread that held the lock stayed in the parent, so the lock is free here */
        }
    }
}

void unlock(struct lock *lock) { atomic_store_explicit(&lock->taken, 0, memory_order_release); }

static bool merge(uintptr_t start, uintptr_t end, uint32_t kind) {
    uint64_t from = root.ranges.count > 8 ? root.ranges.count - 8 : 0;
    for (uint64_t i = from; i < root.ranges.count; i++) {
        struct dmods_audit_range *range = &ranges[i];
        if (range->kind != kind)
            continue;
        if (range->start == end) {
            range->start = start;
            return true;
        }
        if (range->end == start) {
            range->end = end;
            return true;
        }
    }
    return false;
}

/* The caller holds the lock, or no other thread runs yet. */
static bool list(uintptr_t start, uintptr_t end, enum dmods_audit_range_kind kind) {
    root.ranges.entries = (uintptr_t)ranges;
    root.ranges.entry_size = sizeof ranges[0];
    if (merge(start, end, kind))
        return true;
    if (root.ranges.count == RANGES)
        return false;
    ranges[root.ranges.count] = (struct dmods_audit_range){.start = start, .end = end, .kind = kind};
    __atomic_store_n(&root.ranges.count, root.ranges.count + 1, __ATOMIC_RELEASE);
    return true;
}

void own_range(uintptr_t start, uintptr_t end, enum dmods_audit_range_kind kind) {
    lock(&memory_lock);
    list(start, end, kind);
    unlock(&memory_lock);
}

void *own_memory(size_t size, enum dmods_audit_range_kind kind) {
    int saved = errno;
    size = (size + 4095) & ~(size_t)4095;
    /* mmap() and munmap() are hooks. */
    long mapped =
        syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *p = (void *)mapped;
    if (mapped == -1) {
        errno = saved;
        return NULL;
    }
    /* Only the parts of a table that belong to used parts of the heap are touched. Huge pages would cost memory. */
    madvise(p, size, MADV_NOHUGEPAGE);
#ifdef PR_SET_VMA
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, size, "dmods audit");
#endif
    lock(&memory_lock);
    bool listed = list((uintptr_t)p, (uintptr_t)p + size, kind);
    unlock(&memory_lock);
    if (!listed) {
        syscall(SYS_munmap, p, size);
        p = NULL;
    } else {
        add_figure(&root.figures.bytes_mapped, size);
    }
    errno = saved;
    return p;
}

void *table_entry(struct dmods_audit_table *table, uint64_t index, enum dmods_audit_range_kind kind) {
    uint64_t chunk = index >> table->chunk_shift;
    if (chunk >= table->chunk_count)
        return NULL;
    _Atomic(uintptr_t) *place = (_Atomic(uintptr_t) *)table->chunks + chunk;
    uintptr_t entries = atomic_load_explicit(place, memory_order_acquire);
    if (entries == 0) {
        size_t size = (size_t)table->entry_size << table->chunk_shift;
        uintptr_t made = (uintptr_t)own_memory(size, kind);
        if (made == 0)
            return NULL;
        if (atomic_compare_exchange_strong(place, &entries, made))
            entries = made; /* else another thread was faster; our pages stay untouched and cost no memory */
    }
    return (void *)(entries + (index & ((1ull << table->chunk_shift) - 1)) * table->entry_size);
}

/* The kernel copies the signal set before it looks at `how`, which is invalid here. So the error is EFAULT where the
 * address cannot be read and EINVAL where it can (kernel/signal.c, rt_sigprocmask), and nothing else happens. */
bool readable(uintptr_t address) {
    int saved = errno;
    bool can_read = syscall(SYS_rt_sigprocmask, ~0, address, NULL, 8) == 0 || errno != EFAULT;
    errno = saved;
    return can_read;
}
