#include "clock.h"

#include <time.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t clock_slow_ticks(void) { return nanoseconds(CLOCK_MONOTONIC); }

static bool counter_is_steady(void) {
#if defined __x86_64__
    unsigned a, b, c, d;
    /* "Invariant TSC" (Intel SDM volume 3, 18.17.1; AMD APM volume 3, CPUID Fn8000_0007) */
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8;
#elif defined __aarch64__
    return true; /* the generic timer always is (Arm ARM, D12) */
#else
    return false;
#endif
}

/* Read all clocks at the same moment: the fastest of three tries, which was not interrupted in between. */
static struct dmods_audit_moment moment_now(void) {
    struct dmods_audit_moment best = {0, 0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t before = clock_ticks();
        uint64_t monotonic = nanoseconds(CLOCK_MONOTONIC), realtime = nanoseconds(CLOCK_REALTIME);
        uint64_t took = clock_ticks() - before;
        if (took < least) {
            least = took;
            best = (struct dmods_audit_moment){before, monotonic, realtime};
        }
    }
    return best;
}

void clock_start(void) {
    settings.tsc = counter_is_steady();
    root.clock.kind = settings.tsc ? DMODS_AUDIT_CLOCK_TICKS : DMODS_AUDIT_CLOCK_MONOTONIC;
    struct dmods_audit_moment now = moment_now();
    root.clock.start = now;
    /* Readers compute the rate from two moments, so the second one must be a little later than the first. */
    while (clock_slow_ticks() - now.monotonic < 20000)
        ;
    root.clock.latest[0] = root.clock.latest[1] = moment_now();
    settings.start_ticks = now.ticks;
    uint64_t apart = root.clock.latest[0].ticks - now.ticks;
    atomic_store(&settings.next_calibration, now.ticks + 4 * apart);
}

/* The rate becomes more exact as the moments move apart. Each is taken when the run time has grown by an eighth, so no
 * record lies further than that beyond the last moment. */
void clock_calibrate(uint64_t now) {
    static _Atomic int busy;
    if (atomic_exchange(&busy, 1))
        return;
    uint64_t next = (root.clock.latest_index + 1) & 1;
    root.clock.latest[next] = moment_now();
    __atomic_store_n(&root.clock.latest_index, next, __ATOMIC_RELEASE);
    atomic_store(&settings.next_calibration, now + (now - settings.start_ticks) / 8);
    atomic_store(&busy, 0);
}
