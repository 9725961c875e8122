/* No rule from before code was unloaded is used afterwards. The first thread does what a thread does that unloads
 * libraries: it looks at code, and then tells that the code has changed. The other threads do the same at the same
 * time, so the number of the generation runs on while one of them is inside rules_forget(). */
#include "../../audit/unwind/rules.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ends.c hooks functions of this program, so it is left out. */
void ends_start(void);
void ends_start(void) {}

#define THREADS 4
#define ROUNDS 100000

static _Atomic bool finished;

__attribute__((noinline)) static int code(int n) { return n * 7 + 1; }

static _Atomic uint64_t *place_of(uintptr_t address) {
    return &rule_memo[(address ^ address >> 16) & ((1u << MEMO_SHIFT) - 1)];
}

static uint32_t generation(void) { return atomic_load_explicit(&rule_generation, memory_order_acquire); }

static void *unload(void *argument) {
    (void)argument;
    while (!atomic_load(&finished)) {
        rule_of((uintptr_t)unload, generation());
        rules_forget();
    }
    return NULL;
}

int main(void) {
    uintptr_t address = (uintptr_t)code;
    uint32_t right = rule_of(address, generation());
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, unload, NULL) != 0)
            abort();
    unsigned stale = 0;
    for (int i = 0; i < ROUNDS; i++) {
        stale += rule_of(address, generation()) != right;
        atomic_fetch_xor(place_of(address), 1); /* the rule of code that was there before */
        rules_forget();
    }
    atomic_store(&finished, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%u %u\n", stale, generation());
    return stale != 0 || code(right != RULE_UNKNOWN) != 8;
}
