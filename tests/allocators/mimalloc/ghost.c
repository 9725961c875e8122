// Allocates blocks and frees all of them, so that mimalloc gives whole segments back. Then it keeps and loses a few.
// ghost BYTES COUNT THREADS STEP: each thread frees half of its blocks, and half of those of the next thread. Where
// STEP is not 0, each block that is so far from the last one stays.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW 40
#define MOST_THREADS 4
#define HIDDEN ((uintptr_t)0x5a5a5a5a5a5a5a5a)

static void *volatile kept[FEW];
static void *volatile *blocks[MOST_THREADS];
static size_t bytes, count, threads, step;
static pthread_barrier_t all;

static int stays(size_t i) { return step && i % step == 0; }

static void *work(void *argument) {
    size_t own = (uintptr_t)argument, next = (own + 1) % threads;
    for (size_t i = 0; i < count; i++) {
        blocks[own][i] = malloc(bytes + 64 * (i % 7));
        memset(blocks[own][i], 0x11, 64);
    }
    pthread_barrier_wait(&all);
    for (size_t i = 0; i < count; i++)
        if (!stays(i))
            free(blocks[i % 2 ? own : next][i]);
    pthread_barrier_wait(&all);
    for (size_t i = 0; i < count; i++)
        if (!stays(i))
            blocks[own][i] = NULL;
    return NULL;
}

__attribute__((noinline)) static void tell(const char *state, void *block) {
    fprintf(stderr, "%s %lu\n", state, (unsigned long)((uintptr_t)block ^ HIDDEN));
}

__attribute__((noinline)) static void keep_and_lose(void) {
    for (int i = 0; i < FEW; i++) {
        kept[i] = memset(malloc(100 + i), 0x11, 100 + i);
        tell("live", kept[i]);
        tell("lost", memset(malloc(333), 0x22, 333));
    }
}

__attribute__((noinline)) static void clear_stack(void) {
    volatile char below[16384];
    for (size_t i = 0; i < sizeof below; i++)
        below[i] = 0;
}

int main(int argc, char **argv) {
    if (argc != 5 || (threads = strtoul(argv[3], NULL, 10)) > MOST_THREADS)
        return 2;
    bytes = strtoul(argv[1], NULL, 10), count = strtoul(argv[2], NULL, 10), step = strtoul(argv[4], NULL, 10);
    static void *volatile room[MOST_THREADS][10000];
    pthread_t made[MOST_THREADS];
    pthread_barrier_init(&all, NULL, threads);
    for (size_t i = 0; i < threads; i++)
        blocks[i] = room[i];
    for (size_t i = 1; i < threads; i++)
        pthread_create(&made[i], NULL, work, (void *)i);
    work((void *)0);
    for (size_t i = 1; i < threads; i++)
        pthread_join(made[i], NULL);
    for (size_t thread = 0; thread < threads; thread++)
        for (size_t i = 0; i < count; i++)
            if (stays(i))
                tell("live", blocks[thread][i]);
    keep_and_lose();
    clear_stack();
    abort();
}
