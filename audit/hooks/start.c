#include "start.h"
#include "../clock.h"
#include "../memory.h"
#include "../options.h"
#include "../records/log.h"
#include "../records/maps.h"
#include "../records/samples.h"
#include "../records/shadow.h"
#include "../records/stacks.h"
#include "../threads.h"
#include "../unwind/walk.h"
#include "ends.h"
#include "real.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool starting;

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

static void before_fork(void) {
    lock(&maps_lock);
    lock(&stacks_lock);
    lock(&memory_lock);
}

static void after_fork(void) {
    unlock(&memory_lock);
    unlock(&stacks_lock);
    unlock(&maps_lock);
}

static void in_child(void) {
    root.pid = (uint32_t)getpid();
    root.figures.forks++;
    thread_forked();
    after_fork();
}

static void reject(const char *text) {
    const char *parts[] = {"dmods audit: DMODS_AUDIT=", text,
                           " is not understood: nothing is recorded. The words are audit[=FRAMES], sample[=BYTES], "
                           "log[=RECORDS], contents[=BYTES], guards and maps, with commas between\n"};
    for (unsigned i = 0; i < 3; i++)
        if (write(2, parts[i], strlen(parts[i])) < 0)
            return;
}

static enum mode set_up(void) {
    const char *text = getenv("DMODS_AUDIT");
    if (text == NULL || *text == 0)
        return MODE_OFF;
    if (!options_read(text, &root.options)) {
        reject(text);
        return MODE_OFF;
    }
    root.pid = (uint32_t)getpid();
    root.state = DMODS_AUDIT_STARTING;
    settings.frames = root.options.frames;
    settings.guards = root.options.flags & DMODS_AUDIT_GUARDS;
    settings.redzone = root.options.redzone;
    settings.log = root.options.log != 0;
    list_library();
    threads_start();
    clock_start();
    walk_start();
    if (!shadow_start() || !stacks_start() || !log_start() || !maps_start()) {
        strncpy(root.status, "no memory for the tables", sizeof root.status - 1);
        root.state = DMODS_AUDIT_STOPPED;
        return MODE_OFF;
    }
    if (root.options.flags & DMODS_AUDIT_SAMPLED)
        samples_start();
    __atomic_store_n(&root.state, DMODS_AUDIT_RECORDING, __ATOMIC_RELEASE);
    return root.options.flags & DMODS_AUDIT_SAMPLED ? MODE_SAMPLED : MODE_FULL;
}

/* The process has one thread until this is done, because making a thread allocates. */
bool start(void) {
    if (atomic_load(&settings.mode) != MODE_BOOT)
        return true;
    if (starting || environ == NULL)
        return false;
    starting = true;
    real_find();
    enum mode chosen = set_up();
    if (chosen != MODE_FULL)
        settings.smallest = 0;
    atomic_store(&settings.mode, chosen);
    starting = false;
    return true;
}

__attribute__((constructor)) static void constructed(void) {
    if (!start() || root.state != DMODS_AUDIT_RECORDING)
        return;
    pthread_atfork(before_fork, after_fork, in_child);
    ends_start();
}
