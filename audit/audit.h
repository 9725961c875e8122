/* The base of the auditor: compiler macros, settings, and the root structure that readers look for.
 *
 * The layers are base (this folder) <- dump <- records <- unwind <- hooks. A layer includes headers of itself and of
 * the layers before it (tests/audit/test_includes.py checks this). The code of the hot path is inline in the headers.
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

/* The widths of two fields of a record. They limit the tables of threads and stacks. */
#define THREAD_NUMBER_BITS 18
#define STACK_NUMBER_BITS 28

enum mode {
    MODE_BOOT, /* the auditor has not started: blocks come from the bootstrap arena */
    MODE_OFF,
    MODE_SAMPLED,
    MODE_FULL,
};

/* What the hot path reads, in one cache line. */
struct settings {
    _Atomic int mode;
    uint32_t frames;
    bool tsc, log, guards;
    uint32_t redzone;
    size_t smallest; /* the smallest block that is requested, so that two blocks never share a granule */
    _Atomic uint64_t next_calibration;
    uint64_t start_ticks;
} __attribute__((aligned(64)));
extern struct settings settings;

extern struct dmods_audit_root dmods_audit_root EXPORT;
#define root dmods_audit_root

HOT int mode(void) { return atomic_load_explicit(&settings.mode, memory_order_relaxed); }

#endif
