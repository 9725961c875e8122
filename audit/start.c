/* The start: at the first block that is asked for once the environment is there, at the latest in our constructor. */
#include "audit.h"
#include "shadow.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREAD_CHUNK_SHIFT 10
#define THREAD_CHUNKS (1u << (RECORD_THREAD_BITS - THREAD_CHUNK_SHIFT))

struct dmods_audit_root dmods_audit_root __attribute__((aligned(4096))) = {
    .magic = DMODS_AUDIT_MAGIC,
    .version = DMODS_AUDIT_VERSION,
    .size = sizeof(struct dmods_audit_root),
};
struct settings settings;
struct allocator below;

static uint64_t thread_chunks[THREAD_CHUNKS];
static bool busy;

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static void list_library(void) {
    uintptr_t base = (uintptr_t)&__ehdr_start;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_flags & PF_W) {
            uintptr_t start = base + segments[i].p_vaddr, end = start + segments[i].p_memsz;
            own_range(start & ~4095ull, (end + 4095) & ~4095ull, DMODS_AUDIT_RANGE_LIBRARY);
        }
}

static void find_allocator(void) {
#define FIND(name, symbol) below.name = (__typeof__(below.name))dlsym(RTLD_NEXT, symbol)
    FIND(malloc, "malloc");
    FIND(free, "free");
    FIND(calloc, "calloc");
    FIND(realloc, "realloc");
    FIND(memalign, "memalign");
    FIND(aligned_alloc, "aligned_alloc");
    FIND(posix_memalign, "posix_memalign");
    FIND(valloc, "valloc");
    FIND(pvalloc, "pvalloc");
    FIND(usable, "malloc_usable_size");
#undef FIND
    /* glibc never gives less than 32 bytes (MIN_CHUNK_SIZE); another allocator is asked for as much. (Names do not
     * tell: tcmalloc has a __libc_malloc too.) */
    Dl_info libc, allocator;
    bool glibc = dladdr((void *)below.malloc, &allocator) && dladdr((void *)gnu_get_libc_version, &libc) &&
                 libc.dli_fbase == allocator.dli_fbase;
    settings.least = glibc ? 0 : 1u << GRANULE_SHIFT;
}

static void before_fork(void) {
    lock(&stacks_lock);
    lock(&memory_lock);
}

static void after_fork(void) {
    unlock(&memory_lock);
    unlock(&stacks_lock);
}

static void in_child(void) {
    root.pid = (uint32_t)getpid();
    root.figures.forks++;
    thread_forked();
    after_fork();
}

static void complain(const char *text) {
    const char *parts[] = {"dmods audit: DMODS_AUDIT=", text,
                           " is not understood, so nothing is recorded; it may be audit[=FRAMES], sample[=BYTES], "
                           "log[=RECORDS], contents[=BYTES] and guards, with commas between\n"};
    for (unsigned i = 0; i < 3; i++)
        if (write(2, parts[i], strlen(parts[i])) < 0)
            return;
}

static enum mode set_up(void) {
    const char *text = getenv("DMODS_AUDIT");
    if (text == NULL || *text == 0)
        return MODE_OFF;
    if (!options_read(text, &root.options)) {
        complain(text);
        return MODE_OFF;
    }
    root.pid = (uint32_t)getpid();
    root.state = DMODS_AUDIT_STARTING;
    settings.frames = root.options.frames;
    settings.guards = root.options.flags & DMODS_AUDIT_GUARDS;
    settings.redzone = root.options.redzone;
    settings.log = root.options.log != 0;
    root.threads = (struct dmods_audit_table){.chunks = (uintptr_t)thread_chunks,
                                              .chunk_shift = THREAD_CHUNK_SHIFT,
                                              .chunk_count = THREAD_CHUNKS,
                                              .entry_size = sizeof(struct dmods_audit_thread),
                                              .count = 1};
    list_library();
    root.tls_offset = (intptr_t)&self_thread - (intptr_t)__builtin_thread_pointer();
    root.tls_size = sizeof self_thread;
    clock_start();
    fde_start();
    if (!shadow_start() || !stacks_start() || !log_start()) {
        give_up("no memory for the tables");
        return MODE_OFF;
    }
    __atomic_store_n(&root.state, DMODS_AUDIT_RECORDING, __ATOMIC_RELEASE);
    return root.options.flags & DMODS_AUDIT_SAMPLED ? MODE_SAMPLED : MODE_FULL;
}

/* False: not yet. The process has one thread until this is done: making another allocates. */
bool start(void) {
    if (atomic_load(&settings.mode) != MODE_BOOT)
        return true;
    if (busy || environ == NULL)
        return false;
    busy = true;
    find_allocator();
    enum mode chosen = set_up();
    if (chosen != MODE_FULL)
        settings.least = 0;
    atomic_store(&settings.mode, chosen);
    busy = false;
    return true;
}

__attribute__((constructor)) static void constructed(void) {
    if (start() && root.state == DMODS_AUDIT_RECORDING)
        pthread_atfork(before_fork, after_fork, in_child);
}
