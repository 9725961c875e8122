/* Time stamps: the processor's counter where it runs at one rate on all cores, else CLOCK_MONOTONIC. */
#ifndef DMODS_CLOCK_H
#define DMODS_CLOCK_H

#include "audit.h"

void clock_start(void);
uint64_t clock_slow_ticks(void);
COLD void clock_calibrate(uint64_t now);

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

/* Return the time as records store it. */
HOT uint64_t clock_now(void) {
    uint64_t now = clock_ticks();
    if (unlikely(now > atomic_load_explicit(&settings.next_calibration, memory_order_relaxed)))
        clock_calibrate(now);
    return now - settings.start_ticks;
}

#endif
