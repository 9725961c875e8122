/* The hooks of the functions that map memory: mmap, munmap, mremap, brk, sbrk, shmat and shmdt.
 *
 * libc and ld.so call their own versions: memory of malloc itself, stacks of threads and mapped libraries do not come
 * here. Another thread may get the addresses of a range right after it is unmapped. So only entries from before the
 * call are removed.
 */
#include "../records/maps.h"
#include "hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static uintptr_t rounded(uintptr_t size) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    return (size + page) & ~page;
}

/* Record a range, with the stack of the hook's caller. A signal handler may map while its thread is here. */
static COLD void record_map(uintptr_t start, size_t size, uint32_t kind, int protection, uintptr_t frame_pointer) {
    int saved = errno;
    struct thread *thread = thread_self();
    if (thread->mapping) {
        maps_count_lost();
        return;
    }
    thread->mapping = true;
    if (unloading())
        walk_code_unloaded();
    struct dmods_audit_mapping entry = {.start = start,
                                        .end = start + rounded(size),
                                        .time = clock_now(),
                                        .stack = walk(thread, frame_pointer),
                                        .thread = thread->index,
                                        .kind = kind,
                                        .protection = (uint32_t)protection};
    if (entry.start < entry.end)
        maps_put(&entry, kind == DMODS_AUDIT_MAPPING_BRK);
    thread->mapping = false;
    errno = saved;
}

/* Take out of the table what was mapped in a range before a time. */
static COLD struct dmods_audit_mapping forget_map(uintptr_t start, size_t size, uint64_t before) {
    struct dmods_audit_mapping first = {0};
    int saved = errno;
    struct thread *thread = thread_self();
    if (!thread->mapping && size != 0) {
        thread->mapping = true;
        first = maps_cut(start, start + rounded(size), before);
        thread->mapping = false;
    }
    errno = saved;
    return first;
}

static void *call_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (real.mmap != NULL)
        return real.mmap(at, size, protection, flags, fd, offset);
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    void *p = call_mmap(at, size, protection, flags, fd, offset);
    if (maps_wanted() && p != MAP_FAILED)
        record_map((uintptr_t)p, size, DMODS_AUDIT_MAPPING_MMAP, protection, FRAME_POINTER);
    return p;
}

EXPORT void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    void *p = call_mmap(at, size, protection, flags, fd, offset);
    if (maps_wanted() && p != MAP_FAILED)
        record_map((uintptr_t)p, size, DMODS_AUDIT_MAPPING_MMAP, protection, FRAME_POINTER);
    return p;
}

EXPORT int munmap(void *at, size_t size) {
    uint64_t before = maps_wanted() ? clock_now() : 0;
    int error = real.munmap != NULL ? real.munmap(at, size) : (int)syscall(SYS_munmap, at, size);
    if (before != 0 && error == 0)
        forget_map((uintptr_t)at, size, before);
    return error;
}

EXPORT void *mremap(void *old, size_t old_size, size_t size, int flags, ...) {
    void *wanted = NULL;
    if (flags & MREMAP_FIXED) {
        va_list more;
        va_start(more, flags);
        wanted = va_arg(more, void *);
        va_end(more);
    }
    bool stays = old_size == 0; /* a second mapping of shared memory */
#ifdef MREMAP_DONTUNMAP
    stays = stays || flags & MREMAP_DONTUNMAP;
#endif
    uint64_t before = maps_wanted() ? clock_now() : 0;
    void *p = (void *)syscall(SYS_mremap, old, old_size, size, flags, wanted);
    if (before != 0 && p != MAP_FAILED) {
        struct dmods_audit_mapping first = {.protection = PROT_READ | PROT_WRITE};
        if (!stays)
            first = forget_map((uintptr_t)old, old_size, before);
        record_map((uintptr_t)p, size, DMODS_AUDIT_MAPPING_MREMAP, (int)first.protection, FRAME_POINTER);
    }
    return p;
}

/* The end of the heap moved. */
static void record_brk(uintptr_t before, uintptr_t now, uintptr_t frame_pointer) {
    before = rounded(before); /* malloc may have had a part of it: its own sbrk is not recorded */
    now = rounded(now);
    if (now > before)
        record_map(before, now - before, DMODS_AUDIT_MAPPING_BRK, PROT_READ | PROT_WRITE, frame_pointer);
    else if (now < before)
        forget_map(now, before - now, UINT64_MAX);
}

EXPORT int brk(void *end) {
    if (real.brk == NULL || real.sbrk == NULL)
        start();
    if (real.brk == NULL || real.sbrk == NULL) {
        errno = ENOMEM;
        return -1;
    }
    bool wants = maps_wanted();
    uintptr_t before = wants ? (uintptr_t)real.sbrk(0) : 0;
    int error = real.brk(end);
    if (wants && error == 0)
        record_brk(before, (uintptr_t)end, FRAME_POINTER);
    return error;
}

EXPORT void *sbrk(intptr_t by) {
    if (real.sbrk == NULL)
        start();
    if (real.sbrk == NULL) {
        errno = ENOMEM;
        return (void *)-1;
    }
    void *before = real.sbrk(by);
    if (maps_wanted() && by != 0 && before != (void *)-1)
        record_brk((uintptr_t)before, (uintptr_t)before + (uintptr_t)by, FRAME_POINTER);
    return before;
}

EXPORT void *shmat(int id, const void *at, int flags) {
    void *p = (void *)syscall(SYS_shmat, id, at, flags);
    struct shmid_ds about;
    if (maps_wanted() && p != (void *)-1 && shmctl(id, IPC_STAT, &about) == 0)
        record_map((uintptr_t)p, about.shm_segsz, DMODS_AUDIT_MAPPING_SHMAT,
                   flags & SHM_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE, FRAME_POINTER);
    return p;
}

EXPORT int shmdt(const void *at) {
    uint64_t before = maps_wanted() ? clock_now() : 0;
    int error = (int)syscall(SYS_shmdt, at);
    if (before != 0 && error == 0) {
        struct dmods_audit_mapping whole = maps_at((uintptr_t)at, DMODS_AUDIT_MAPPING_SHMAT);
        if (whole.start != 0)
            forget_map(whole.start, whole.end - whole.start, before);
    }
    return error;
}
