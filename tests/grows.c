/*
 * Follows a script, and dies in a forked child after each of three rounds: core.0, core.1, core.2. Each child has the
 * addresses of its parent. Before it dies, the parent writes its ledger to the file "truth", for each kind:
 * "ROUND KIND BLOCKS BYTES" (BYTES is the sum of malloc_usable_size).
 *
 * held     60 more each round, kept in a list: the leak that somebody holds
 * lost     40 more each round, from another thread and its arena; nobody keeps the address
 * cache    200 in every round; 10 of them replaced
 * filling  0, 150, 150: a cache that has reached its bound in round 1
 * request  100, 120, 140: all new in each round
 * frag     with an argument: 80,000 before core.1, of which one in 64 stays
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD, LOST, CACHE, FILLING, REQUEST, FRAG, KINDS };
static const char *const names[] = {"held", "lost", "cache", "filling", "request", "frag"};
static const size_t sizes[] = {56, 104, 200, 296, 392, 504};

struct held {
    struct held *next;
    char name[24];
    long id, more[2];
};

static long blocks[KINDS], bytes[KINDS];
static struct held *list;
static void *cache[200], *filling[150], *requests[140], *fragments[80000];
static FILE *truth;

static __attribute__((noinline)) void *count(int kind, void *block) {
    blocks[kind]++;
    bytes[kind] += (long)malloc_usable_size(block);
    return block;
}

static void release(int kind, void **place) {
    if (*place == NULL)
        return;
    blocks[kind]--;
    bytes[kind] -= (long)malloc_usable_size(*place);
    free(*place);
    *place = NULL;
}

__attribute__((noinline)) void *make_held(int round, int i) {
    struct held *one = calloc(1, sizes[HELD]);
    one->next = list;
    snprintf(one->name, sizeof one->name, "session-%d-%d", round, i);
    one->id = 100000 + round * 1000 + i;
    list = one;
    return count(HELD, one);
}

__attribute__((noinline)) void *make_lost(int i) {
    long *one = calloc(1, sizes[LOST]);
    one[0] = 1 + i;
    one[3] = 0x123456789aL + i;
    return count(LOST, one);
}

__attribute__((noinline)) void *make_cache(int i) {
    char *one = calloc(1, sizes[CACHE]);
    snprintf(one, 64, "cached-page-%d", i);
    return count(CACHE, one);
}

__attribute__((noinline)) void *make_filling(int i) {
    char *one = calloc(1, sizes[FILLING]);
    snprintf(one, 64, "filling-page-%d", i);
    return count(FILLING, one);
}

__attribute__((noinline)) void *make_request(int i) {
    char *one = calloc(1, sizes[REQUEST]);
    snprintf(one, 64, "GET /page/%d", i);
    return count(REQUEST, one);
}

__attribute__((noinline)) void *make_frag(void) {
    return count(FRAG, calloc(1, sizes[FRAG]));
}

static pthread_barrier_t before, after;

static void *worker(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    for (;;) {
        pthread_barrier_wait(&before);
        for (int i = 0; i < 40; i++)
            make_lost(i);
        pthread_barrier_wait(&after);
    }
    return unused;
}

static __attribute__((noinline)) void play(int round, int with_fragments) {
    for (int i = 0; i < 60; i++)
        make_held(round, i);
    for (int i = 0; i < 200; i++)
        if (round == 0 || i % 20 == round) {
            release(CACHE, &cache[i]);
            cache[i] = make_cache(i);
        }
    for (int i = 0; round > 0 && i < 150; i++)
        if (filling[i] == NULL)
            filling[i] = make_filling(i);
    /* The old requests end after the new ones have begun, so no new one takes the address of an old one. */
    void *old[140];
    memcpy(old, requests, sizeof old);
    for (int i = 0; i < 140; i++)
        requests[i] = i < 100 + 20 * round ? make_request(i) : NULL;
    for (int i = 0; i < 140; i++)
        release(REQUEST, &old[i]);
    if (with_fragments && round == 1) {
        for (int i = 0; i < 80000; i++)
            fragments[i] = make_frag();
        for (int i = 0; i < 80000; i++)
            if (i % 64)
                release(FRAG, &fragments[i]);
    }
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
}

static void dump(int round) {
    char name[32];
    for (int kind = 0; kind < KINDS; kind++)
        fprintf(truth, "%d %s %ld %ld\n", round, names[kind], blocks[kind], bytes[kind]);
    fflush(truth);
    pid_t child = fork();
    if (child == 0) {
        kill(getpid(), SIGABRT);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    char with_pid[32];
    snprintf(name, sizeof name, "core.%d", round);
    snprintf(with_pid, sizeof with_pid, "core.%d", (int)child);
    if (rename("core", name) != 0 && rename(with_pid, name) != 0)
        exit(1);
}

int main(int argc, char **argv) {
    (void)argv;
    static char buffer[65536];
    truth = fopen("truth", "w");
    setvbuf(truth, buffer, _IOFBF, sizeof buffer);
    pthread_t thread;
    pthread_barrier_init(&before, NULL, 2);
    pthread_barrier_init(&after, NULL, 2);
    pthread_create(&thread, NULL, worker, NULL);
    for (int round = 0; round < 3; round++) {
        play(round, argc > 1);
        volatile char stack[16384]; /* what play left behind */
        memset((void *)stack, 0, sizeof stack);
        dump(round);
    }
    return 0;
}
