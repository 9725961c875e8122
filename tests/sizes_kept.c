/* A leaked block, and sizes that malloc keeps which are addresses within it: where a heap lies low, a threshold may be
 * one. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static __attribute__((noinline)) void leak(void) {
    char *lost = malloc(20000);
    memset(lost, 1, 20000);
    mallopt(M_TRIM_THRESHOLD, (int)(((uintptr_t)lost + 8192) & ~(uintptr_t)4095));
}

static __attribute__((noinline)) void wipe(void) {
    char volatile stack[4096];
    for (unsigned i = 0; i < sizeof stack; i++)
        stack[i] = 0;
}

int main(void) {
    leak();
    wipe();
    abort();
}
