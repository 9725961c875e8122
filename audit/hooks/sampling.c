#include "sampling.h"

#include <string.h>

/* Return ln(x) for x in (0, 1], to 1e-9. libm would be one more library in every process. */
static double logarithm(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    bits = (bits & 0xfffffffffffff) | 1023ull << 52;
    double m; /* in [1, 2): ln m = 2 artanh((m - 1) / (m + 1)) */
    memcpy(&m, &bits, sizeof m);
    double z = (m - 1) / (m + 1), power = z, sum = 0;
    for (int i = 1; i < 20; i += 2, power *= z * z)
        sum += power / i;
    return 2 * sum + exponent * 0.69314718055994530942;
}

/* Draw the distance to the next sample. */
static int64_t draw_distance(struct thread *thread) {
    thread->random ^= thread->random << 13; /* xorshift64 */
    thread->random ^= thread->random >> 7;
    thread->random ^= thread->random << 17;
    if (thread->random == 0)
        thread->random = 0x9e3779b97f4a7c15;
    double uniform = ((double)(thread->random >> 11) + 1) / 9007199254740992.0;
    double bytes = -logarithm(uniform) * (double)root.options.sample;
    return bytes < 9e18 ? (int64_t)bytes + 1 : INT64_MAX;
}

bool sample_due(struct thread *thread, size_t size) {
    bool due = thread->sampling;
    if (!thread->sampling) {
        thread->sampling = true;
        thread->until_sample = draw_distance(thread) - (int64_t)size;
        due = thread->until_sample <= 0;
    }
    if (due)
        thread->until_sample = draw_distance(thread);
    return due;
}
